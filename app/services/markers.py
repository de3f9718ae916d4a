"""Markers: numbers that travel through the whole pipe behind the messages, and so prove which of them were lost.

Invariant: the number is drawn before the marker is produced, and only then. Several relays may emit at once; the
agreement in Redis that one does so an interval saves messages, and nothing depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep

import redis
from sqlalchemy.engine import Engine

from app.db import outbox
from app.domain.kinds import Priority
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.outlets import Outlet

_log = get_logger(__name__)

_RETRY_SECONDS = 0.5


@dataclass(slots=True)
class _Round:
    next_at: float = 0.0
    published: int = 0
    partitions: int = 1


class Markers:
    """Emits a marker every interval while rows are QUEUED, and after every so many rows of a partition."""

    def __init__(
        self,
        engine: Engine,
        outlet: Outlet,
        turns: "redis.Redis | None",
        *,
        interval_seconds: float,
        every_rows: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._engine = engine
        self._outlet = outlet
        self._turns = turns
        self._interval_seconds = interval_seconds
        self._every_rows = every_rows
        self._clock = clock
        self._rounds = {priority: _Round() for priority in Priority}

    def published(self, priority: Priority, rows: int) -> None:
        """Count rows that were published; used by the thread that runs the relay of this priority."""
        self._rounds[priority].published += rows

    def emit_if_due(self, priority: Priority, within_seconds: float) -> bool:
        """Emit when it is time and something is in the pipe; tell whether a marker was sent."""
        state = self._rounds[priority]
        has_many = state.published >= self._every_rows * state.partitions
        if not has_many and self._clock() < state.next_at:
            return False
        state.next_at = self._clock() + self._interval_seconds
        has_published, state.published = state.published > 0, 0
        if not has_published and not self._has_queued(priority):
            return False
        partitions = self._outlet.partitions(priority)
        if partitions is None:
            return False
        state.partitions = partitions
        if not has_many and not self._is_my_turn(priority):
            return False
        return self.emit(priority, partitions, within_seconds)

    def open_pipe(self, within_seconds: float, pause: Callable[[float], object] = sleep) -> bool:
        """Send one marker of each priority down the pipe as soon as the outlet answers, within `within_seconds`.

        It opens what the first message would otherwise open: the producers and their ids, the bridge's way to the
        lists, the workers' connections. Returns whether all were sent; nothing depends on it.
        """
        deadline = self._clock() + within_seconds
        waiting = list(Priority)
        while waiting and self._clock() < deadline:
            for priority in tuple(waiting):
                partitions = self._outlet.partitions(priority)
                if partitions is not None and self.emit(priority, partitions, within_seconds):
                    waiting.remove(priority)
            if waiting:
                pause(_RETRY_SECONDS)
        return not waiting

    def emit(self, priority: Priority, partitions: int, within_seconds: float) -> bool:
        """Draw a number, then send it down every partition.

        The draw is committed first: without that, a crash of the database could hand the same numbers out again,
        and rows that are stamped with them would lie below a marker that had already passed.
        """
        with self._engine.begin() as connection:
            seq = outbox.draw(connection)
        is_sent = self._outlet.mark(priority, seq, partitions, within_seconds)
        if is_sent:
            metrics.RELAY_MARKERS.labels(priority.name).inc(partitions)
        else:
            _log.info("marker_not_acknowledged", priority=priority.name, seq=seq)
        return is_sent

    def _has_queued(self, priority: Priority) -> bool:
        with self._engine.connect() as connection:
            return outbox.has_queued(connection, priority)

    def _is_my_turn(self, priority: Priority) -> bool:
        if self._turns is None:
            return True
        key = f"arauto:marker:{self._outlet.topic(priority)}"
        try:
            return bool(self._turns.set(key, 1, nx=True, px=int(self._interval_seconds * 900)))
        except redis.RedisError:
            return True
