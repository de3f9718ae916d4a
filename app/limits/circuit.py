"""Stays away from a Redis that does not answer, so that its outage costs the requests nothing.

The first failure opens it. While it is open nobody asks, and at most once a second a thread of its own looks
whether the server is back: no request waits for that look. An outage is logged once when it begins and once
when it ends.
"""

import threading
import time
from collections.abc import Callable

from redis import RedisError

from app.observability import metrics
from app.observability.logging import get_logger

PROBE_EVERY_SECONDS = 1.0
_log = get_logger(__name__)


class Circuit:
    """Whether a server may be asked. Safe for threads. `probe` asks it and raises redis.RedisError."""

    def __init__(
        self, name: str, probe: Callable[[], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._probe = probe
        self._clock = clock
        self._lock = threading.Lock()
        self._is_open = False
        self._next_probe_at = 0.0
        self._probing: threading.Thread | None = None

    def is_open(self) -> bool:
        """Tell whether to stay away; starts the look that is due."""
        if not self._is_open:
            return False
        if self._clock() >= self._next_probe_at and self._lock.acquire(blocking=False):
            try:
                if self._probing is None or not self._probing.is_alive():
                    self._next_probe_at = self._clock() + PROBE_EVERY_SECONDS
                    self._probing = threading.Thread(target=self._look, name=f"{self._name}-probe", daemon=True)
                    self._probing.start()
            finally:
                self._lock.release()
        return True

    def failed(self, error: Exception) -> None:
        """Say that a call failed."""
        with self._lock:
            began = not self._is_open
            self._is_open = True
            self._next_probe_at = self._clock() + PROBE_EVERY_SECONDS
        if began:
            metrics.CIRCUIT_OPENED.labels(self._name).inc()
            _log.warning("redis_passed_over", what=self._name, reason=type(error).__name__)

    def _look(self) -> None:
        try:
            self._probe()
        except (RedisError, OSError):
            return
        with self._lock:
            self._is_open = False
        _log.info("redis_asked_again", what=self._name)
