"""Rows put straight into the tables, for tests of what reads them; partitions of past days can be made."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from sqlalchemy.engine import Engine

from app.db import partitions
from app.domain.ids import mint

_COLUMNS = {
    "SENDING": {"lease_token": 1, "lease_until": "now() + interval '2 min'"},
    "QUEUED": {"published_seq": "nextval('flow_seq')"},
    "SENT": {"sent_at": "now()"},
    "DELIVERED": {"delivered_at": "now()"},
    "UNKNOWN": {"uncertain": "true"},
    "FAILED": {"error_code": "'rejected'"},
}


def utc_today() -> date:
    """Today in UTC, as the database and the ids see it."""
    return datetime.now(UTC).date()


def make_day(engine: Engine, day: date) -> None:
    """Make the partitions of `day` where they are missing."""
    with engine.begin() as connection:
        present = partitions.attached(connection)
        for table in partitions.TABLES:
            partition = partitions.Partition(table, day)
            if partition not in present:
                partitions.make(connection, partition)


def put(
    engine: Engine,
    *states: str,
    at: datetime | None = None,
    tenant: str = "demo",
    attempts: int = 0,
    promised: int | None = None,
    **columns: str | int,
) -> tuple[UUID, list[UUID]]:
    """Store a notification with a delivery in each of `states`, accepted `at`; return their ids.

    `columns` are SQL expressions for the deliveries. `promised` makes the notification claim another number.
    """
    at = at or datetime.now(UTC)
    notification, *deliveries = mint(1 + len(states), int(at.timestamp() * 1000))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO notification (id, tenant_id, user_id, category, priority, delivery_count, created_at)"
            " VALUES (%s, %s, 'u', 'c', 1, %s, %s)",
            (str(notification), tenant, len(states) if promised is None else promised, at),
        )
        for identifier, state in zip(deliveries, states, strict=True):
            extra = {"priority": 1, "channel": "'SMS'", "attempts": attempts} | _COLUMNS.get(state, {}) | columns
            names = "".join(f", {name}" for name in extra)
            values = "".join(f", {value}" for value in extra.values())
            connection.exec_driver_sql(
                f"INSERT INTO delivery (id, notification_id, tenant_id, user_id, status, created_at{names})"
                f" VALUES (%s, %s, %s, 'u', %s, %s{values})",
                (str(identifier), str(notification), tenant, state, at),
            )
            for number in range(1, attempts + 1):
                connection.exec_driver_sql(
                    "INSERT INTO attempt VALUES (%s, %s, %s, 'p', 'accepted', NULL, NULL, now(), 1)",
                    (str(identifier), number, tenant),
                )
    return notification, deliveries


def noon(days_ago: int) -> datetime:
    """Noon, UTC, that many days ago."""
    return datetime.combine(utc_today(), datetime.min.time(), UTC) + timedelta(hours=12, days=-days_ago)
