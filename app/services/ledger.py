"""The ledger: proof that what was accepted is accounted for, by tenant and hour, with the ids where it is not.

It compares what the notifications promised with the deliveries that exist in any state, each delivery's attempt
count with its recorded attempts, and each idempotency key with the notification that it answers with; for dropped
days, the promised sum with the states' sums. It reads only, a day at a time.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime

from sqlalchemy.engine import Connection, Engine

from app.db import ledger, partitions
from app.db.ledger import Finding, Sum

ACCEPTED = "ACCEPTED"
_FINDINGS_PER_CHECK_AND_DAY = 1000


@dataclass(slots=True)
class Line:
    """One tenant's hour: what was promised, and the deliveries by state."""

    tenant_id: str
    hour: datetime
    accepted: int = 0
    states: dict[str, int] = field(default_factory=dict)

    @property
    def difference(self) -> int:
        """Deliveries that exist, less those promised; 0 when all is accounted for."""
        return sum(self.states.values()) - self.accepted


@dataclass(frozen=True, slots=True)
class Report:
    """Lines by tenant and hour, and the ids on which two tables disagree (at most 1,000 a kind and day)."""

    lines: list[Line]
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        """Tell whether everything that was accepted is accounted for."""
        return not self.findings and all(line.difference == 0 for line in self.lines)


@dataclass(frozen=True)
class Ledger:
    """Reads the tables of `engine`."""

    engine: Engine

    def compare(
        self,
        *,
        since: datetime | None = None,
        tenant_id: str | None = None,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Report:
        """Compare everything accepted at or after `since`; `progress` gets days done and days in all."""
        lines: dict[tuple[str, datetime], Line] = {}
        findings: list[Finding] = []

        def add(one: Sum) -> None:
            line = lines.setdefault((one.tenant_id, one.hour), Line(one.tenant_id, one.hour))
            if one.status == ACCEPTED:
                line.accepted += one.count
            else:
                line.states[one.status] = line.states.get(one.status, 0) + one.count

        days = self._days(since)
        for done, day in enumerate(days):
            progress(done, len(days))
            with self.engine.begin() as connection:
                ledger.begin_snapshot(connection)
                reader = ledger.DayReader(
                    connection, day, self._standing(connection)[day], since=since, tenant_id=tenant_id
                )
                for one in reader.sums():
                    add(one)
                findings.extend(reader.findings(_FINDINGS_PER_CHECK_AND_DAY))
        with self.engine.begin() as connection:
            for one in ledger.dropped(connection, since, tenant_id):
                add(one)
        progress(len(days), len(days))
        return Report([lines[key] for key in sorted(lines)], findings)

    def _days(self, since: datetime | None) -> list[date]:
        with self.engine.begin() as connection:
            present = {partition.day for partition in partitions.attached(connection)}
            present |= {partition.day for partition in partitions.standing(connection)}
        return sorted(day for day in present if since is None or day >= since.date())

    @staticmethod
    def _standing(connection: Connection) -> dict[date, frozenset[str]]:
        tables: dict[date, set[str]] = defaultdict(set)
        for partition in partitions.standing(connection):
            tables[partition.day].add(partition.table)
        return defaultdict(frozenset, {day: frozenset(names) for day, names in tables.items()})
