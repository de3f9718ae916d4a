"""The data folder of a stack: who holds it, what an earlier run left behind, and `run.json` for scripts."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from embedded.processes import MARK
from embedded.server import ServerError

_LOG_BYTES = 50_000_000
_UNDERTAKER = Path(__file__).with_name("undertaker.py")


class DataFolder:
    """One folder, held by one supervisor at a time; the lock goes with the process, also at kill -9."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self._run_file = path / "run.json"
        self._lock: int | None = None
        self._undertaker: subprocess.Popen[bytes] | None = None

    def hold(self) -> Self:
        """Take the folder; raise ServerError naming the pid that has it."""
        self.logs.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / "up.lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock, 20).decode().strip() or "unknown"
            os.close(lock)
            raise ServerError(
                f"another `arauto up` (pid {holder}) runs on {self.path}: "
                f"stop it with `kill {holder}`, or start this one beside it with --data DIR"
            ) from error
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        self._lock = lock
        self._run_file.unlink(missing_ok=True)
        self._undertaker = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_UNDERTAKER), str(self.path)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def release(self) -> None:
        """Give the folder free."""
        self._run_file.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._undertaker is not None and self._undertaker.stdin is not None:
            self._undertaker.stdin.close()
            self._undertaker.wait()
            self._undertaker = None

    def publish(self, about: dict[str, Any]) -> None:
        """Write `run.json` in one step: a reader sees the old one or the new one. It holds a token: ours alone."""
        draft = self._run_file.with_suffix(".draft")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(about, indent=2) + "\n")
        draft.replace(self._run_file)

    def sweep(self) -> list[str]:
        """Kill what an earlier run of this folder left running; return the names of those programs."""
        left = [process for process in psutil.process_iter(["pid", "name"]) if self._is_ours(process)]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(left, timeout=10)
        return sorted(str(process.info["name"]) for process in left)

    def _is_ours(self, process: psutil.Process) -> bool:
        """Return whether the process carries our mark, or is a PostgreSQL at work in our folder.

        PostgreSQL writes its title over its environment, so it is known by its folder.
        """
        if process.pid == os.getpid():
            return False
        try:
            if process.info["name"] == "postgres":
                return Path(process.cwd()) == self.path / "postgres"
            return process.environ().get(MARK) == str(self.path)
        except (psutil.Error, OSError):
            return False

    def trim_logs(self) -> None:
        """Keep each log bounded: a full one is copied aside and begins anew (its writers append)."""
        for log in self.logs.glob("*.log"):
            with contextlib.suppress(OSError):
                if log.stat().st_size > _LOG_BYTES:
                    shutil.copyfile(log, log.with_suffix(".log.1"))
                    os.truncate(log, 0)
