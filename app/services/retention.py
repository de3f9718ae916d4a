"""Retention: whole days older than RETENTION_DAYS are dropped, never single rows, and never a day in flight.

What was accepted stays accounted for at every instant. A day is first detached (milliseconds of lock, tried for
a fraction of a second, so that traffic never queues behind it), then its sums move to the `ledger` table and it
is dropped in one transaction. Between the two it stands alone and `arauto ledger` counts it there. Beside this,
idempotency keys past their days are deleted in batches, that table being small, and months of the audit log
that end before its own retention are dropped whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError

from app.db import audit_partitions, fallback, frequency, partitions, prune
from app.domain.ids import day_floor
from app.domain.months import month_after
from app.observability import metrics
from app.observability.logging import get_logger

_DETACH_LOCK_SECONDS = 0.3
"""Three tables are locked one after the other, all before anyone's deadlock check (1 s) could pick a victim."""
_DROP_LOCK_SECONDS = 5.0
_LOCK_NOT_HAD = {"55P03", "40P01"}
_SUMS_STATEMENT_TIMEOUT = "10min"
_PRUNE_BATCH = 5000
_PRUNE_BATCHES = 200
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one run removed. `kept_days` are old days that still have rows in flight."""

    dropped_days: list[date] = field(default_factory=list)
    kept_days: list[date] = field(default_factory=list)
    idempotency_keys: int = 0
    audit_months: list[date] = field(default_factory=list)
    frequency_hits: int = 0
    fallback_steps: int = 0


@dataclass(frozen=True)
class Retention:
    """Ends old days and deletes old idempotency keys."""

    engine: Engine
    retention_days: int
    idempotency_days: int
    audit_days: int

    def run_once(self) -> Pruned:
        """Do all of it once; a lock that cannot be had leaves its day to the next run."""
        with self.engine.begin() as connection:
            today = partitions.today(connection)
            oldest_kept = today - timedelta(days=self.retention_days)
            attached = {partition.day for partition in partitions.attached(connection)}
            standing = {partition.day for partition in partitions.standing(connection)}
        old = sorted(day for day in attached | standing if day < oldest_kept)
        dropped: list[date] = []
        kept: list[date] = []
        for day in old:
            (dropped if self._end(day) else kept).append(day)
        keys = self._prune(partial(prune.idempotency_keys, days=self.idempotency_days, batch=_PRUNE_BATCH))
        hits = self._prune(partial(frequency.prune, batch=_PRUNE_BATCH))
        before = str(day_floor(min(kept, default=oldest_kept)))
        steps = self._prune(partial(fallback.prune, before=before, batch=_PRUNE_BATCH))
        result = Pruned(dropped, kept, keys, self._end_months(today), hits, steps)
        metrics.UPKEEP_LAST_RUN.labels("prune").set_to_current_time()
        if dropped or kept:
            _log.info("retention_ran", dropped=[str(d) for d in dropped], kept=[str(d) for d in kept])
        return result

    def _end(self, day: date) -> bool:
        try:
            return self._detach(day) and self._drop(day)
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) not in _LOCK_NOT_HAD:
                raise
            _log.info("retention_waits_for_lock", day=str(day))
            return False

    def _detach(self, day: date) -> bool:
        """Detach what is attached of `day`, unless a row of it is in flight.

        Looked at twice: without a lock, so that a day that stays costs nobody anything, and under it, since an
        operator may replay a FAILED row in between.
        """
        with self.engine.begin() as connection:
            ours = [partition for partition in partitions.attached(connection) if partition.day == day]
            if not ours:
                return True
            if partitions.has_rows_in_flight(connection, day):
                return False
        with self.engine.begin() as connection:
            partitions.lock(connection, _DETACH_LOCK_SECONDS)
            partitions.lock_parents(connection)
            ours = [partition for partition in partitions.attached(connection) if partition.day == day]
            if ours and partitions.has_rows_in_flight(connection, day):
                return False
            for partition in ours:
                partitions.detach(connection, partition)
        return True

    def _drop(self, day: date) -> bool:
        with self.engine.begin() as connection:
            partitions.lock(connection, _DROP_LOCK_SECONDS)
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{_SUMS_STATEMENT_TIMEOUT}'")
            standing = {partition for partition in partitions.standing(connection) if partition.day == day}
            partitions.move_sums(connection, standing, day)
            for partition in standing:
                partitions.drop(connection, partition)
        if standing:
            metrics.PARTITIONS_DROPPED.inc()
        return True

    def _end_months(self, today: date) -> list[date]:
        """Drop the months of the audit log whose last day is past its retention."""
        oldest_kept = today - timedelta(days=self.audit_days)
        with self.engine.begin() as connection:
            attached = sorted(audit_partitions.attached(connection))
        old = [month for month in attached if month_after(month) <= oldest_kept]
        return [month for month in old if self._end_month(month)]

    def _end_month(self, month: date) -> bool:
        try:
            with self.engine.begin() as connection:
                partitions.lock(connection, _DETACH_LOCK_SECONDS)
                audit_partitions.drop(connection, month)
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) not in _LOCK_NOT_HAD:
                raise
            _log.info("retention_waits_for_lock", month=str(month))
            return False
        _log.info("audit_month_dropped", month=str(month))
        return True

    def _prune(self, batch: Callable[[Connection], int]) -> int:
        total = 0
        for _ in range(_PRUNE_BATCHES):
            with self.engine.begin() as connection:
                removed = batch(connection)
            total += removed
            if removed < _PRUNE_BATCH:
                break
        return total
