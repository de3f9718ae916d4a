"""The partitions of the audit log, one a month: which there are, making one, and dropping one.

Every statement runs in its caller's transaction. Nothing is ever deleted from the log but by dropping a month.
"""

import re
from datetime import UTC, date, datetime

from sqlalchemy.engine import Connection

from app.domain.ids import day_floor
from app.domain.months import month_after

_NAME = re.compile(r"^audit_entry_(\d{6})$")

_ATTACHED = """
SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
WHERE inhparent = 'audit_entry'::regclass
"""
# CREATE TABLE … PARTITION OF would lock the parent against every reader; ATTACH only against other changes of it.
# It hands the row trigger of the parent down. One for TRUNCATE cannot be, so each partition gets its own.
_CREATE = "CREATE TABLE audit_entry_{month:%Y%m} (LIKE audit_entry INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
_ATTACH = (
    "ALTER TABLE audit_entry ATTACH PARTITION audit_entry_{month:%Y%m} FOR VALUES FROM ('{low}') TO ('{high}')"
)
_KEEP_WHOLE = (
    "CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON audit_entry_{month:%Y%m} "
    "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit()"
)
_DROP = "DROP TABLE IF EXISTS audit_entry_{month:%Y%m}"


def attached(connection: Connection) -> set[date]:
    """Return the months that have a partition, each by its first day."""
    found = (_NAME.match(name) for name in connection.exec_driver_sql(_ATTACHED).scalars())
    return {datetime.strptime(match[1], "%Y%m").replace(tzinfo=UTC).date() for match in found if match}


def make(connection: Connection, month: date) -> None:
    """Create the partition of a month and attach it."""
    low, high = day_floor(month), day_floor(month_after(month))
    for statement in (_CREATE, _ATTACH, _KEEP_WHOLE):
        connection.exec_driver_sql(statement.format(month=month, low=low, high=high))


def drop(connection: Connection, month: date) -> None:
    """Drop a month with all its entries."""
    connection.exec_driver_sql(_DROP.format(month=month))
