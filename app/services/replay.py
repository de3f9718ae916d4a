"""Replay: an operator sends FAILED deliveries again, by id or all with one error code.

Each batch is one short transaction. What a crash of a worker counted against an id is forgotten before the row can
be claimed again, else the first new try would end it at once; the relay is told after the commit.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.engine import Engine

from app.db import audit, partitions
from app.db import replay as rows
from app.domain.audit import Entry
from app.domain.ids import day_floor, first_id_at
from app.domain.kinds import Priority
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.audit import entry
from app.services.operators import operator

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
                self._batch(ids, result, code)
                progress(len(result.replayed) + len(result.refused))
                after = UUID(ids[-1])
        return result

    def _batch(self, ids: Sequence[str], result: Replayed, code: str = "") -> None:
        self.forget_crashes(ids)
        with self.engine.begin() as connection:
            replayed = rows.replay(connection, ids, self.more_attempts)
            audit.add_within(connection, _entries(replayed.values(), code))
        missed = [one for one in ids if one not in replayed]
        if missed:
            with self.engine.connect() as connection:
                reasons = rows.why_not(connection, missed)
            result.refused.update({one: reasons.get(one, "does not exist") for one in missed})
        result.replayed.extend(one for one in ids if one in replayed)
        metrics.REPLAYED_DELIVERIES.inc(len(replayed))
        _log.info("deliveries_replayed", count=len(replayed), refused=len(missed))
        for priority in sorted({row.priority for row in replayed.values()}):
            self.nudge(Priority(priority))


def _entries(replayed: Iterable[rows.ReplayedRow], code: str) -> list[Entry]:
    """Return an entry of the audit log for each tenant of a batch."""
    by_tenant: dict[str, list[str]] = defaultdict(list)
    for row in replayed:
        by_tenant[row.tenant_id].append(row.id)
    return [
        entry(
            operator(tenant_id),
            "delivery.replayed",
            "delivery",
            ids[0] if len(ids) == 1 else code or "several",
            {"count": len(ids), "first": min(ids), "last": max(ids)} | ({"error_code": code} if code else {}),
        )
        for tenant_id, ids in sorted(by_tenant.items())
    ]
