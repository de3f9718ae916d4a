"""One child process: how it is started, watched and ended.

Each child is the leader of its own session, so a Ctrl-C in the terminal reaches only the supervisor, which then
stops the children in order. Each child gets a signal from the kernel when the supervisor is killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MARK = "ARAUTO_STACK"
"""Every child carries the stack's data folder in it: the next start finds by it what was left over."""

_LAUNCH = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class User:
    """The unprivileged user a child runs as, and whether it must pass folders that are closed to it."""

    uid: int
    gid: int
    may_search: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """All that is needed to start a process, as data."""

    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    user: User | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    death_signal: signal.Signals = signal.SIGKILL
    captures_output: bool = False
    niceness: int = 0
    """How far the process steps back when there is too little processor time for all, 0 to 19."""

    def arguments(self) -> list[str]:
        """Return the whole command line, the launcher in front."""
        line = [sys.executable, "-I", "-S", str(_LAUNCH), "--signal", str(int(self.death_signal))]
        line += ["--parent", str(os.getpid()), "--nice", str(self.niceness)]
        if self.user is not None:
            line += ["--uid", str(self.user.uid), "--gid", str(self.user.gid)]
            line += ["--search"] if self.user.may_search else []
        return [*line, "--", *self.command]


class Child:
    """A running process.

    Start it from a thread that lives as long as the child should: the kernel's death signal watches the thread.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.started_at = time.monotonic()
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        with launch.log.open("ab") as log:
            self._process = subprocess.Popen(
                launch.arguments(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if launch.captures_output else log,
                stderr=log,
                cwd=launch.folder,
                env={**os.environ, **launch.environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, also of the session and group that it leads."""
        return self._process.pid

    @property
    def output(self) -> IO[bytes]:
        """What the child prints, where its launch captures it."""
        if self._process.stdout is None:
            raise RuntimeError("this launch does not capture its output")
        return self._process.stdout

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs; reaps it."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Send the signal on which this kind of process stops cleanly."""
        if self.poll() is None:
            self._process.send_signal(self.launch.stop_signal)

    def wait(self, seconds: float) -> bool:
        """Wait for the end; return whether it came in time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill the process (SIGKILL) and reap it."""
        if self.poll() is None:
            self._process.kill()
        self._process.wait()
        self.close()

    def stop(self) -> None:
        """Stop cleanly, by force when the time is up, and end whatever it has left in its group."""
        self.ask_to_stop()
        self.wait(self.launch.stop_seconds)
        self.end_group()
        self.kill()

    def end_group(self) -> None:
        """Kill what is left in the child's process group, such as the workers of a killed server."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the captured output."""
        if self._process.stdout is not None:
            self._process.stdout.close()


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, for messages about a process that did not start."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
