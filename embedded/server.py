"""What the embedded servers have in common: prepare, launch, be ready, stop.

`prepare` does the slow and repeatable work (create a data folder, fetch jars) and may be called again after a
crash or after the data was wiped. `launch` says how to start the process; the supervisor and the tests both
start it from there.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

from embedded.ports import free_port
from embedded.processes import Child, Launch, tail

Say = Callable[[str], None]


class ServerError(Exception):
    """A server could not be prepared or did not start; the message says what to do."""


def nothing(_: str) -> None:
    """Say nothing: the progress of servers in tests."""


class Server(ABC):
    """One embedded server on the loopback interface, its data in one folder."""

    name = "server"
    start_seconds = 60.0
    start_tries = 1

    def __init__(self, data: Path, port: int | None = None, *, log: Path | None = None) -> None:
        self.data = data.absolute()
        self.port = port or free_port()
        self.log = log or self.data.parent / "logs" / f"{self.name}.log"
        self._child: Child | None = None

    def prepare(self, say: Say = nothing) -> None:
        """Make ready to launch; harmless when all is there already."""
        say("")

    @abstractmethod
    def launch(self) -> Launch:
        """Return how the process is started."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether it answers its own protocol."""

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        if self._child is None:
            raise ServerError(f"{self.name} is not started")
        return self._child.pid

    def start(self, say: Say = nothing) -> Self:
        """Prepare, launch and wait until it answers; raise ServerError with the end of its log otherwise."""
        for left in reversed(range(self.start_tries)):
            self.prepare(say)
            self._child = Child(self.launch())
            if self._became_ready(self._child):
                return self
            self._child.kill()
            if left:
                time.sleep(0.5)
        raise ServerError(f"{self.name} did not start; the end of {self.log}:\n{tail(self.log)}")

    def _became_ready(self, child: Child) -> bool:
        until = time.monotonic() + self.start_seconds
        while time.monotonic() < until:
            if child.poll() is not None:
                return False
            if self.is_ready():
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> None:
        """Stop cleanly; harmless when it does not run."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """Kill it as `kill -9` would; `start` brings it back with its data."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
