"""`arauto up` as a user runs it: a process of its own, known by run.json and what it prints."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psutil

from embedded.processes import MARK
from tests.sandbox_client import Sandbox
from tests.waiting import eventually

READY_SECONDS = 150
STOP_SECONDS = 60
_GIVEN = ("DATABASE_URL", "REDIS_URL", "KAFKA_BOOTSTRAP_SERVERS", "SANDBOX_URL", "SANDBOX_SMTP_URL", MARK)


class Stack:
    """One stack on one data folder."""

    def __init__(self, data: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.data = data
        self.output = data.with_suffix(".out")
        inherited = {name: value for name, value in os.environ.items() if name not in _GIVEN}
        with self.output.open("ab") as output, _hangups_heeded():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "up", "--data", str(data), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=inherited | (environment or {}),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGINT)

    @property
    def info(self) -> dict[str, Any]:
        """What run.json says now."""
        about: dict[str, Any] = json.loads((self.data / "run.json").read_text())
        return about

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by name."""
        return {process["name"]: process["pid"] for process in self.info["processes"]}

    @property
    def bearer(self) -> dict[str, str]:
        """Headers that prove a service of tenant demo."""
        return {"Authorization": f"Bearer {self.info['token']}"}

    @property
    def sandbox(self) -> Sandbox:
        """Its provider simulator."""
        return Sandbox(self.info["sandbox"], "")

    def until_ready(self) -> Self:
        """Wait for run.json; fail with what was printed when the stack ends instead."""

        def is_there() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"arauto up ended: {self.output.read_text()}")
            return (self.data / "run.json").exists()

        eventually(is_there, seconds=READY_SECONDS, every_seconds=0.1, why=self.output.read_text())
        return self

    def stop(self, number: signal.Signals) -> int:
        """Send a signal to the supervisor and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def kill_everything(self) -> None:
        """End the supervisor and all its processes as kill -9 does, at one moment."""
        pids = [self.process.pid, *self.pids.values()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        # A script that starts the next stack must not take the file of this one for it.
        eventually(lambda: not (self.data / "run.json").exists(), seconds=10)

    def accept(self, body: str, **changes: object) -> dict[str, Any]:
        """Post one SMS and one e-mail to recipients that work; return the answer of a 202."""
        notification = {
            "user_id": "42",
            "category": "security",
            "priority": "HIGH",
            "channels": ["SMS", "EMAIL"],
            "content": {"title": "t", "body": body},
            "recipients": {"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com"},
        } | changes
        request = urllib.request.Request(
            f"{self.info['api']}/v1/notifications",
            json.dumps(notification).encode(),
            {
                "Authorization": f"Bearer {self.info['token']}",
                "Content-Type": "application/json",
                "Idempotency-Key": uuid.uuid4().hex,
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 202
            accepted: dict[str, Any] = json.load(answer)
        return accepted

    def has_sent(self, accepted: dict[str, Any]) -> bool:
        """Whether every delivery of an accepted notification is in the sandbox's outbox."""
        ids = {delivery["id"] for delivery in accepted["deliveries"]}
        try:
            return ids <= {call["reference"] for call in self.sandbox.outbox()}
        except (urllib.error.URLError, ConnectionError):
            return False


@contextmanager
def _hangups_heeded() -> Iterator[None]:
    """Undo the `nohup` that the tests may run under for what is started inside: a stack honours it."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, inherited)


def is_running(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def marked(data: Path) -> list[int]:
    """The pids of all processes that carry the mark of this data folder, or are its PostgreSQL."""
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get(MARK) == str(data) or process.cwd() == str(data / "postgres")
        except (psutil.Error, OSError):
            continue
        if is_ours and is_running(process.pid):
            found.append(process.pid)
    return found
