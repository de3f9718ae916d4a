"""Health: what this process can reach, asked rarely and answered fast.

A probe is asked by load balancers from every side, so its answer is kept for a moment, and while one thread asks a
part that is slow, the others are told what was last known. So a slow part holds up one thread at most.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.observability.logging import get_logger

_FRESH_SECONDS = 1.0
_STALE_SECONDS = 5.0
_FIRST_ANSWER_SECONDS = 3.0

_log = get_logger(__name__)


class Health(StrEnum):
    """The state of one part, or of the whole."""

    OK = "ok"
    DEGRADED = "degraded"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class _Known:
    is_up: bool
    at: float


class Part:
    """One thing that is checked. `check` returns when it is well and raises otherwise, in bounded time."""

    def __init__(
        self, name: str, check: Callable[[], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._check = check
        self._clock = clock
        self._asking = threading.Lock()
        self._known: _Known | None = None

    def is_up(self) -> bool:
        """Return whether the part answers, as known for at most a second, or while a check hangs for five."""
        known = self._known
        if known is not None and self._clock() - known.at < _FRESH_SECONDS:
            return known.is_up
        if not self._asking.acquire(timeout=0 if known else _FIRST_ANSWER_SECONDS):
            return known is not None and known.is_up and self._clock() - known.at < _STALE_SECONDS
        try:
            if self._known is not known and self._known is not None:
                return self._known.is_up
            self._known = _Known(self._ask(), self._clock())
            return self._known.is_up
        finally:
            self._asking.release()

    def _ask(self) -> bool:
        try:
            self._check()
        except Exception as error:  # noqa: BLE001  whatever it is, the part does not answer
            _log.info("health_check_failed", part=self.name, error=type(error).__name__)
            return False
        return True


class HealthChecks:
    """The parts of this process. Only the database is needed to accept; without the rest, delivery waits."""

    def __init__(self, needed: Part, others: Mapping[str, Part], is_migrated: Callable[[], bool]) -> None:
        self._needed = needed
        self._parts = {"database": needed, **others}
        self._is_migrated = is_migrated
        self._has_started = False

    def is_ready(self) -> bool:
        """Return whether requests can be served."""
        return self._needed.is_up()

    def has_started(self) -> bool:
        """Return whether the database was reached once with its tables in place."""
        if not self._has_started and self._needed.is_up():
            self._has_started = self._is_migrated()
        return self._has_started

    def report(self) -> tuple[Health, dict[str, Health]]:
        """Return the state of the whole and of each part."""
        checks = {name: Health.OK if part.is_up() else Health.DOWN for name, part in self._parts.items()}
        if checks["database"] is Health.DOWN:
            return Health.DOWN, checks
        return Health.DEGRADED if Health.DOWN in checks.values() else Health.OK, checks


def reach(addresses: str, timeout_seconds: float) -> None:
    """Return when one of the comma-separated host:port `addresses` takes a connection; raise OSError otherwise."""
    problem: OSError = OSError("no address given")
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout_seconds).close()
        except OSError as error:
            problem = error
        else:
            return
    raise problem
