"""Partitions ahead: today's rows and those of the next days always have a place.

Ids are minted only on the day of acceptance, so yesterday (a request that crossed midnight, a slow clock) to
`partitions_ahead_days` from now is all that can be needed. Run by beat and after a migration; any number of them
at once take turns. A week ahead means that upkeep may be dead for a week before anyone notices in the traffic;
`arauto doctor` and the metric `partitions_ahead_days` notice on the first day. The audit log has months instead of
days, and three of them ahead.
"""

from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy.engine import Engine

from app.db import audit_partitions, partitions
from app.db.partitions import TABLES, Partition
from app.domain.months import month_after, month_before
from app.observability import metrics
from app.observability.logging import get_logger

_LOCK_SECONDS = 5.0
_MONTHS_AHEAD = 3
_log = get_logger(__name__)


@dataclass(frozen=True)
class PartitionsAhead:
    """Makes the partitions that are missing."""

    engine: Engine
    ahead_days: int

    def run_once(self) -> int:
        """Make what is missing; return how many partitions were made.

        Each day is a transaction of its own under a lock timeout. A table that stays locked ends this run with
        OperationalError: the days before are made, nothing is half made, and the next run goes on.
        """
        with self.engine.begin() as connection:
            today = partitions.today(connection)
            missing = self._missing(partitions.attached(connection), today)
            has_months = not _missing_months(audit_partitions.attached(connection), today)
        if not has_months:
            self._make_months(today)
        made = sum(self._make(day) for day in sorted({partition.day for partition in missing}))
        metrics.PARTITIONS_AHEAD.set(self.ahead_days)
        metrics.UPKEEP_LAST_RUN.labels("partitions").set_to_current_time()
        if made:
            _log.info("partitions_made", count=made, until=str(today + timedelta(days=self.ahead_days)))
        return made

    def _make_months(self, today: date) -> None:
        with self.engine.begin() as connection:
            partitions.lock(connection, _LOCK_SECONDS)
            missing = _missing_months(audit_partitions.attached(connection), today)
            for month in missing:
                audit_partitions.make(connection, month)
        _log.info("audit_months_made", count=len(missing))

    def _missing(self, present: set[Partition], today: date) -> set[Partition]:
        days = [today + timedelta(days=offset) for offset in range(-1, self.ahead_days + 1)]
        return {Partition(table, day) for table in TABLES for day in days} - present

    def _make(self, day: date) -> int:
        with self.engine.begin() as connection:
            partitions.lock(connection, _LOCK_SECONDS)
            present = partitions.attached(connection)
            wanted = [Partition(table, day) for table in TABLES if Partition(table, day) not in present]
            for partition in wanted:
                partitions.make(connection, partition)
        return len(wanted)


def _missing_months(present: set[date], today: date) -> list[date]:
    months = [month_before(today.replace(day=1))]
    for _ in range(_MONTHS_AHEAD + 1):
        months.append(month_after(months[-1]))
    return [month for month in months if month not in present]
