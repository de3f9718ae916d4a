"""Rescue of QUEUED rows: a row whose message provably left the pipe without reaching a worker is published again.

Invariant: a row is lost when, and only when, a marker with a greater number came through every partition that
exists now, at least H ago by the database's clock. Age proves nothing: a row in a long backlog is not lost.
Numbers of the other transport's markers do not count, so after a change of TRANSPORT what is left in the old pipe
is given up and published again.
"""

from collections.abc import Mapping

from sqlalchemy.engine import Engine

from app.db import outbox
from app.domain.kinds import Priority
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.outlets import Outlet

_log = get_logger(__name__)

_BATCH = 1000
_ROUNDS = 20
KEEP_MARKS_SECONDS = 3600.0


class RescueQueued:
    """Brings lost rows back to PENDING, with growing pauses, and gives them up after `limit` rescues."""

    def __init__(self, engine: Engine, outlet: Outlet, *, hold_seconds: float, limit: int) -> None:
        self._engine = engine
        self._outlet = outlet
        self._hold_seconds = hold_seconds
        self._limit = limit

    def run_once(self) -> int:
        """Bring back what is lost of every priority; return how many rows."""
        with self._engine.connect() as connection:
            marks = outbox.passed_marks(connection, self._hold_seconds)
        return sum(self._rescue(priority, marks.get(self._outlet.topic(priority), {})) for priority in Priority)

    def prune(self) -> int:
        """Delete old markers; return how many. Newer ones follow for as long as anything is in the pipe."""
        with self._engine.begin() as connection:
            return outbox.prune_marks(connection, max(KEEP_MARKS_SECONDS, 10 * self._hold_seconds))

    def _rescue(self, priority: Priority, marks: Mapping[int, int]) -> int:
        if not marks:
            return 0
        total = 0
        for _ in range(_ROUNDS):
            with self._engine.connect() as connection:
                has_candidates = outbox.find_lost(connection, priority, max(marks.values()), 1)
            before = self.watermark(priority, marks) if has_candidates else None
            if before is None:
                break
            with self._engine.begin() as connection:
                ids = outbox.find_lost(connection, priority, before, _BATCH)
                counts = outbox.bring_back(connection, ids, before, self._limit) if ids else {}
            total += sum(counts.values())
            for state, count in counts.items():
                metrics.RESCUED.labels("QUEUED" if state == "PENDING" else "undeliverable").inc(count)
                _log.warning("queued_rescued", priority=priority.name, to=state, rows=count, before=before)
            if len(ids) < _BATCH:
                break
        return total

    def watermark(self, priority: Priority, marks: Mapping[int, int]) -> int | None:
        """Return W: the least over all partitions of the greatest marker through it, or None if one has none.

        Only the partitions that the cluster names now count, and while it cannot be asked nothing is lost.
        """
        partitions = self._outlet.partitions(priority)
        if partitions is None or any(partition not in marks for partition in range(partitions)):
            return None
        return min(marks[partition] for partition in range(partitions))
