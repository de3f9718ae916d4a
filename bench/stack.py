"""A stack of its own for one measurement: `arauto up` in a temporary folder, driven as a user would."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg2
import redis
from rich.console import Console

console = Console(stderr=True)

READY_SECONDS = 240.0
STOP_SECONDS = 90.0


class StackError(RuntimeError):
    """The stack did not come up, or ended by itself; the message names the log to read."""


@dataclass
class Stack:
    """A running `arauto up`; `info` is its run.json."""

    data: Path
    process: subprocess.Popen[bytes]
    info: dict[str, Any]

    @property
    def api(self) -> str:
        """Base address of the API."""
        return str(self.info["api"]).rstrip("/")

    @property
    def sandbox(self) -> str:
        """Base address of the provider simulator."""
        return str(self.info["sandbox"]).rstrip("/")

    @property
    def token(self) -> str:
        """A bearer token of tenant `demo` with every scope."""
        return str(self.info["token"])

    def reread(self) -> None:
        """Read run.json again: process ids change when the supervisor restarts one."""
        with contextlib.suppress(OSError, ValueError):
            self.info = json.loads((self.data / "run.json").read_text())

    def pid(self, name: str) -> int | None:
        """Return the process id of `name` now, or None while it is down."""
        self.reread()
        return next((int(p["pid"]) for p in self.info["processes"] if p["name"] == name), None)

    def kill(self, name: str, sig: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal to one process of this stack; False when it is down already."""
        pid = self.pid(name)
        if pid is None:
            return False
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            return False
        return True

    def database(self) -> psycopg2.extensions.connection:
        """Return a new connection to the stack's database, in autocommit."""
        connection = psycopg2.connect(str(self.info["database_url"]))
        connection.autocommit = True
        return connection

    def valkey(self) -> "redis.Redis":
        """Return a client of the stack's Valkey."""
        return redis.Redis.from_url(str(self.info["redis_url"]), decode_responses=True)

    def control(self, action: str, name: str, *, wipe: bool = False) -> None:
        """Stop or start one process of the stack through its supervisor; `wipe` deletes its data while stopped."""
        arguments = ["stack", action, name, "--data", str(self.data), *(["--wipe"] if wipe else [])]
        done = subprocess.run(
            [str(command()), *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise StackError(f"arauto {' '.join(arguments)}: {done.stderr or done.stdout}")

    def arauto(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the `arauto` command against this stack."""
        environment = os.environ | {
            "DATABASE_URL": str(self.info["database_url"]),
            "REDIS_URL": str(self.info["redis_url"]),
            "KAFKA_BOOTSTRAP_SERVERS": str(self.info["kafka_bootstrap"]),
        }
        return subprocess.run(
            [str(command()), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=check,
            timeout=300,
        )


def command() -> Path:
    """Return the path of the `arauto` command beside this interpreter."""
    return Path(sys.executable).with_name("arauto")


@contextlib.contextmanager
def running(broker: str = "auto", **settings: object) -> Iterator[Stack]:
    """Start a stack with `settings` (environment variables) and stop it at the end.

    Raises StackError when it is not ready within READY_SECONDS. The data folder goes when the run ends well;
    after a failure it stays, and the error names it.
    """
    data = Path(tempfile.mkdtemp(prefix="arauto-bench-"))
    log = data.with_suffix(".log")
    own = {"DATABASE_URL", "REDIS_URL", "BROKER_URL", "CACHE_URL", "KAFKA_BOOTSTRAP_SERVERS", "API_PORT"}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {name: str(value) for name, value in settings.items()}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(command()), "up", "--data", str(data), "--broker", broker],
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    try:
        yield _when_ready(data, process, log)
    except BaseException:
        console.print(f"[dim]logs of this run: {log} and {data}/logs[/dim]")
        _stop(process)
        raise
    _stop(process)
    shutil.rmtree(data, ignore_errors=True)
    log.unlink(missing_ok=True)


def _when_ready(data: Path, process: subprocess.Popen[bytes], log: Path) -> Stack:
    deadline = time.monotonic() + READY_SECONDS
    with console.status("starting a stack of its own…"):
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                return Stack(data, process, cast("dict[str, Any]", json.loads((data / "run.json").read_text())))
            if process.poll() is not None:
                raise StackError(f"arauto up ended with code {process.returncode}: read {log}")
            time.sleep(0.1)
    raise StackError(f"the stack was not ready after {READY_SECONDS:.0f} s: read {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        console.print(
            f"[yellow]arauto up (pid {process.pid}) did not stop in {STOP_SECONDS:.0f} s: killed[/yellow]"
        )
        process.kill()
        process.wait()
