"""A small circuit of the cache's own: a server that does not answer is left alone for a while.

A time-out is paid by the few requests that meet it, not by each that follows. One request tries again when the
pause is over; pauses double up to a bound while it fails. The threads of a process share one circuit.
"""

import time
from collections.abc import Callable
from threading import Lock

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0


class Circuit:
    """Tells whether to ask the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._pause = 0.0
        self._open_until = 0.0

    def is_closed(self) -> bool:
        """Tell whether the caller may ask; of those that come when a pause is over, one may."""
        if not self._pause:
            return True
        with self._lock:
            now = self._clock()
            if now < self._open_until:
                return False
            self._open_until = now + self._pause
            return True

    def succeeded(self) -> None:
        """The server answered."""
        if self._pause:
            with self._lock:
                self._pause = self._open_until = 0.0

    def failed(self) -> None:
        """It did not."""
        with self._lock:
            self._pause = min(max(self._pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            self._open_until = self._clock() + self._pause
