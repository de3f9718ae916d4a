"""When API keys were last used, written behind the requests that used them.

A request only leaves a mark in memory. A thread of its own writes the marks: the first one of a key at once, the
next ones at most once in an interval, and what is left when the process ends. A process that is killed loses the
marks of the last interval, and nothing else. While the database does not take them they wait here, one for each
key, and are not tried again before the interval is over.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.util import Finalize

from app.observability.logging import get_logger

Write = Callable[[Mapping[str, float]], None]
"""Writes for each key id how many seconds ago it was used."""

_LOOK_EVERY_SECONDS = 1.0
_log = get_logger(__name__)


class LastUses:
    """The marks of one process. Its thread starts with the first mark, so that a fork before it shares nothing."""

    def __init__(
        self, write: Write, *, interval_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._marks: dict[str, float] = {}
        self._tried_at: dict[str, float] = {}
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, key_id: str) -> None:
        """Remember that a key was used now."""
        self._marks[key_id] = self._clock()
        if self._thread is None:
            self._start()

    def write_due(self) -> None:
        """Write the marks of keys for which the last try lies an interval back."""
        latest = self._clock() - self._interval_seconds
        tried = self._tried_at
        self._send([key for key in list(self._marks) if tried.get(key, -math.inf) <= latest])

    def flush(self) -> None:
        """Write every mark that is left."""
        self._send(list(self._marks))

    def _send(self, keys: list[str]) -> None:
        if not keys:
            return
        # Taken out one by one: a request that marks a key in between leaves a new mark and loses none.
        taken = {key: at for key in keys if (at := self._marks.pop(key, None)) is not None}
        now = self._clock()
        try:
            self._write({key: max(now - at, 0.0) for key, at in taken.items()})
        except Exception as error:  # noqa: BLE001  whatever it is, it comes again and no request depends on it
            for key, at in taken.items():
                self._marks.setdefault(key, at)
            _log.info("key_uses_not_written", keys=len(taken), reason=type(error).__name__)
        # Only keys that are in use are kept, so that this does not grow with all that ever were.
        self._tried_at = {
            key: at for key, at in self._tried_at.items() if now - at < self._interval_seconds
        } | dict.fromkeys(keys, now)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                # The server's workers are children of multiprocessing, which runs these and no atexit handlers.
                Finalize(None, self.flush, exitpriority=10)
                self._thread = threading.Thread(target=self._run, name="key-uses", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_LOOK_EVERY_SECONDS)
            self.write_due()
