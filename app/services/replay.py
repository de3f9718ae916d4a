"""Replay: an operator sends FAILED deliveries again, by id or all with one error code.

Each batch is one short transaction. What a crash of a worker counted against an id is forgotten before the row can
be claimed again, else the first new try would end it at once; the relay is told after the commit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.engine import Engine

from app.db import partitions
from app.db import replay as rows
from app.domain.ids import day_floor, first_id_at
from app.domain.kinds import Priority
from app.observability import metrics
from app.observability.logging import get_logger

_BATCH = 500
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Ids that will be sent again, and for the others the reason why not."""

    replayed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Replay:
    """`forget_crashes` clears the crash counts of ids; `nudge` wakes the relay for a priority."""

    engine: Engine
    more_attempts: int
    forget_crashes: Callable[[Sequence[str]], None]
    nudge: Callable[[Priority], None]

    def by_id(self, ids: Sequence[UUID]) -> Replayed:
        """Replay these deliveries."""
        result = Replayed()
        wanted = [str(one) for one in dict.fromkeys(ids)]
        for start in range(0, len(wanted), _BATCH):
            self._batch(wanted[start : start + _BATCH], result)
        return result

    def by_error_code(
        self,
        code: str,
        *,
        since: datetime | None = None,
        tenant_id: str | None = None,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> Replayed:
        """Replay every FAILED delivery with this code accepted at or after `since`, day by day in order of id.

        `progress` gets the number of rows looked at so far.
        """
        result = Replayed()
        with self.engine.connect() as connection:
            days = sorted({one.day for one in partitions.attached(connection) if one.table == "delivery"})
        for day in days:
            low, high = day_floor(day), day_floor(day + timedelta(days=1))
            after = max(low, first_id_at(since)) if since else low
            while after < high:
                with self.engine.connect() as connection:
                    ids = rows.failed_with_code(
                        connection, code, after=after, high=high, tenant_id=tenant_id, limit=_BATCH
                    )
                if not ids:
                    break
                self._batch(ids, result)
                progress(len(result.replayed) + len(result.refused))
                after = UUID(ids[-1])
        return result

    def _batch(self, ids: Sequence[str], result: Replayed) -> None:
        self.forget_crashes(ids)
        with self.engine.begin() as connection:
            priorities = rows.replay(connection, ids, self.more_attempts)
        missed = [one for one in ids if one not in priorities]
        if missed:
            with self.engine.connect() as connection:
                reasons = rows.why_not(connection, missed)
            result.refused.update({one: reasons.get(one, "does not exist") for one in missed})
        result.replayed.extend(one for one in ids if one in priorities)
        metrics.REPLAYED_DELIVERIES.inc(len(priorities))
        _log.info("deliveries_replayed", count=len(priorities), refused=len(missed))
        for priority in sorted(set(priorities.values())):
            self.nudge(Priority(priority))
