"""The figures of `arauto status` and `arauto doctor`, each from a partial index, a range of ids or a catalogue.

None of them reads a table from end to end, so an operator may ask at the worst moment. The totals by state read
the ids of the asked-for hours and are the only ones that can be slow; they have a time limit of their own.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Connection

from app.domain.ids import first_id_at

_PENDING = """
SELECT priority, channel, count(*) FILTER (WHERE relay_at <= now()), count(*) FILTER (WHERE relay_at > now()),
       extract(epoch FROM now() - min(relay_at) FILTER (WHERE relay_at <= now()))::float8
FROM delivery WHERE status = 'PENDING' GROUP BY 1, 2
"""
_QUEUED = "SELECT priority, channel, count(*) FROM delivery WHERE status = 'QUEUED' GROUP BY 1, 2"
_QUEUED_OLDEST = """
SELECT published_seq, extract(epoch FROM now() - updated_at)::float8 FROM delivery
WHERE status = 'QUEUED' AND priority = %(priority)s ORDER BY published_seq LIMIT 1
"""
_SENDING = """
SELECT priority, channel, count(*), count(*) FILTER (WHERE lease_until < now()),
       extract(epoch FROM now() - min(updated_at))::float8
FROM delivery WHERE status = 'SENDING' GROUP BY 1, 2
"""
_UNKNOWN = """
SELECT priority, channel, count(*), count(*) FILTER (WHERE next_attempt_at < now()),
       extract(epoch FROM now() - min(updated_at))::float8
FROM delivery WHERE status = 'UNKNOWN' GROUP BY 1, 2
"""
_TOTALS = """
SELECT priority, status, count(*) FROM delivery WHERE id >= %(low)s::uuid GROUP BY 1, 2
"""
_ACCEPTED_SINCE = "SELECT count(*) FROM delivery WHERE id >= %(low)s::uuid"
_CALLS_EVER = """
SELECT coalesce(sum(n_tup_ins), 0)::bigint FROM pg_stat_user_tables WHERE relname ~ '^attempt_[0-9]{8}$'
"""
_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'), now(),
       current_setting('max_connections')::int, (SELECT count(*) FROM pg_stat_activity)
"""
# Autovacuum and base backups read old snapshots by nature; what a person or a process of ours left open is named.
_OLDEST_TRANSACTION = """
SELECT pid, coalesce(application_name, ''), state, extract(epoch FROM now() - xact_start)::float8
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
  AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1
"""
_DEAD_ROWS = """
SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
WHERE relname ~ '^(delivery|notification)_[0-9]{8}$' OR relname IN ('flow_mark', 'idempotency_key')
ORDER BY n_dead_tup DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows of one priority and channel in one state. `late` are due, or past their lease or window."""

    priority: int
    channel: str
    count: int
    late: int
    oldest_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class Server:
    """What PostgreSQL says of itself; `now` is its clock."""

    version_number: int
    version: str
    now: datetime
    max_connections: int
    connections: int


def pending(connection: Connection) -> list[Waiting]:
    """Return PENDING rows: `late` of them are due now, and `oldest_age_seconds` is of those alone."""
    rows = connection.exec_driver_sql(_PENDING)
    return [Waiting(p, channel, due + later, due, age) for p, channel, due, later, age in rows]


def queued(connection: Connection) -> list[Waiting]:
    """Return QUEUED rows by priority and channel; their age is `oldest_queued`."""
    return [Waiting(p, channel, count, 0, None) for p, channel, count in connection.exec_driver_sql(_QUEUED)]


def oldest_queued(connection: Connection, priority: int) -> tuple[int, float] | None:
    """Return number in the flow and seconds since publication of the row that is longest in the pipe."""
    row = connection.exec_driver_sql(_QUEUED_OLDEST, {"priority": priority}).first()
    return (row[0], row[1]) if row else None


def sending(connection: Connection) -> list[Waiting]:
    """Return SENDING rows; `late` ones are past their lease."""
    return [Waiting(*row) for row in connection.exec_driver_sql(_SENDING)]


def unknown(connection: Connection) -> list[Waiting]:
    """Return UNKNOWN rows; `late` ones are past their window."""
    return [Waiting(*row) for row in connection.exec_driver_sql(_UNKNOWN)]


def totals(connection: Connection, since: datetime, timeout_seconds: float) -> dict[tuple[int, str], int]:
    """Return rows accepted at or after `since` by (priority, state); raises when it takes too long."""
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(timeout_seconds * 1000)}")
    rows = connection.exec_driver_sql(_TOTALS, {"low": str(first_id_at(since))})
    return {(row[0], row[1]): row[2] for row in rows}


def accepted_since(connection: Connection, since: datetime) -> int:
    """Return how many deliveries were accepted at or after `since`."""
    count: int = connection.exec_driver_sql(_ACCEPTED_SINCE, {"low": str(first_id_at(since))}).scalar_one()
    return count


def calls_ever(connection: Connection) -> int:
    """Return PostgreSQL's count of attempt rows ever inserted; it lags by up to a second. For rates."""
    count: int = connection.exec_driver_sql(_CALLS_EVER).scalar_one()
    return count


def server(connection: Connection) -> Server:
    """Return version, clock and connections of the server."""
    return Server(*connection.exec_driver_sql(_SERVER).one())


def oldest_transaction(connection: Connection) -> tuple[int, str, str, float] | None:
    """Return pid, application, state and age in seconds of the oldest open transaction, other than ours."""
    row: Any = connection.exec_driver_sql(_OLDEST_TRANSACTION).first()
    return tuple(row) if row else None


def dead_rows(connection: Connection) -> tuple[str, int, int] | None:
    """Return table, live and dead rows where most rows are dead."""
    row: Any = connection.exec_driver_sql(_DEAD_ROWS).first()
    return tuple(row) if row else None
