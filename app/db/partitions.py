"""The partitions by day: which exist, making one, taking one out, and the sums that outlive it.

Every statement runs in its caller's transaction. The order of a day's end is: `lock_parents` and `detach` (brief,
nothing is read under it but partial indexes), then, in a second transaction in which nobody else can be waiting,
`move_sums` and `drop`. A crash between the two leaves a table that stands alone; `standing` finds it by its name,
so the ledger still counts it and the next run ends it.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from sqlalchemy.engine import Connection

from app.domain.ids import day_floor
from app.domain.states import OPEN

TABLES = ("notification", "delivery", "attempt")
UPKEEP_LOCK = 7_238_111
"""Advisory lock of whoever makes or drops partitions; migrations hold their own."""

_NAME = re.compile(r"^(notification|delivery|attempt)_(\d{8})$")

_ATTACHED = """
SELECT child.relname
FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid JOIN pg_class parent ON parent.oid = inhparent
WHERE parent.oid = ANY (ARRAY['notification'::regclass, 'delivery'::regclass, 'attempt'::regclass]::oid[])
"""
_STANDING = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND NOT relispartition AND relnamespace = current_schema()::regnamespace
  AND relname ~ '^(notification|delivery|attempt)_[0-9]{8}$'
"""
_TODAY = "SELECT (now() AT TIME ZONE 'UTC')::date"
_LOCK = "SELECT pg_advisory_xact_lock(%(key)s)"
_LOCK_PARENTS = "LOCK TABLE ONLY delivery, ONLY notification, ONLY attempt IN ACCESS EXCLUSIVE MODE"

# CREATE TABLE … PARTITION OF would lock the parent against every reader; ATTACH only against other changes of it.
_CREATE = "CREATE TABLE {table}_{day:%Y%m%d} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
_ATTACH = "ALTER TABLE {table} ATTACH PARTITION {table}_{day:%Y%m%d} FOR VALUES FROM ('{low}') TO ('{high}')"
_DETACH = "ALTER TABLE {table} DETACH PARTITION {table}_{day:%Y%m%d}"
_DROP = "DROP TABLE IF EXISTS {table}_{day:%Y%m%d}"

# Each state is asked for alone, because only then its own partial index answers, however many rows are done.
_IN_FLIGHT = " UNION ALL ".join(
    f"(SELECT id FROM {{table}} WHERE status = '{state}' LIMIT 1)"  # noqa: S608  names from the enum
    for state in sorted(OPEN)
)

_MOVE_ACCEPTED = """
INSERT INTO ledger (tenant_id, hour, status, count)
SELECT tenant_id, date_trunc('hour', created_at, 'UTC'), 'ACCEPTED', sum(delivery_count)
FROM notification_{day:%Y%m%d} GROUP BY 1, 2
ON CONFLICT (tenant_id, hour, status) DO UPDATE SET count = ledger.count + excluded.count
"""
_MOVE_STATES = """
INSERT INTO ledger (tenant_id, hour, status, count)
SELECT tenant_id, date_trunc('hour', created_at, 'UTC'), status, count(*)
FROM delivery_{day:%Y%m%d} GROUP BY 1, 2, 3
ON CONFLICT (tenant_id, hour, status) DO UPDATE SET count = ledger.count + excluded.count
"""


class Partition(NamedTuple):
    """One day of one table."""

    table: str
    day: date


def _parse(names: Iterable[str]) -> set[Partition]:
    found = (_NAME.match(name) for name in names)
    return {
        Partition(match[1], datetime.strptime(match[2], "%Y%m%d").replace(tzinfo=UTC).date())
        for match in found
        if match
    }


def lock(connection: Connection, seconds: float) -> None:
    """Take turns with whoever else changes partitions, and wait at most `seconds` for this or any later lock."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(seconds * 1000)}")
    connection.exec_driver_sql(_LOCK, {"key": UPKEEP_LOCK})


def lock_parents(connection: Connection) -> None:
    """Keep every reader and writer out of the three tables; fails when the lock timeout set by `lock` is over."""
    connection.exec_driver_sql(_LOCK_PARENTS)


def today(connection: Connection) -> date:
    """Return the database's day, in UTC."""
    day: date = connection.exec_driver_sql(_TODAY).scalar_one()
    return day


def attached(connection: Connection) -> set[Partition]:
    """Return the partitions of the three tables."""
    return _parse(connection.exec_driver_sql(_ATTACHED).scalars())


def standing(connection: Connection) -> set[Partition]:
    """Return the days that were detached and not yet dropped."""
    return _parse(connection.exec_driver_sql(_STANDING).scalars())


def make(connection: Connection, partition: Partition) -> None:
    """Create one partition and attach it; its indexes follow from the parent's."""
    low, high = day_floor(partition.day), day_floor(partition.day + timedelta(days=1))
    for statement in (_CREATE, _ATTACH):
        connection.exec_driver_sql(statement.format(table=partition.table, day=partition.day, low=low, high=high))


def has_rows_in_flight(connection: Connection, day: date) -> bool:
    """Tell whether any delivery of `day` may still move by itself: a scheduled one counts, since it is PENDING."""
    table = f"delivery_{day:%Y%m%d}"
    return connection.exec_driver_sql(_IN_FLIGHT.format(table=table)).first() is not None


def detach(connection: Connection, partition: Partition) -> None:
    """Take a partition out of its table; it stands alone with its rows until `drop`."""
    connection.exec_driver_sql(_DETACH.format(table=partition.table, day=partition.day))


def move_sums(connection: Connection, standing_day: set[Partition], day: date) -> None:
    """Add what the standing tables of `day` hold to the ledger: promised (ACCEPTED) and by state."""
    tables = {partition.table for partition in standing_day if partition.day == day}
    if "notification" in tables:
        connection.exec_driver_sql(_MOVE_ACCEPTED.format(day=day))
    if "delivery" in tables:
        connection.exec_driver_sql(_MOVE_STATES.format(day=day))


def drop(connection: Connection, partition: Partition) -> None:
    """Drop a table that stands alone."""
    connection.exec_driver_sql(_DROP.format(table=partition.table, day=partition.day))
