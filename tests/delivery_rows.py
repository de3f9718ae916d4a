"""Rows for tests of the worker and of recovery: notifications with one delivery each, straight into the tables."""

from typing import Any

from sqlalchemy.engine import Engine

from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from tests.sealed import sealed_content

_NOTIFICATION = """
INSERT INTO notification (id, tenant_id, user_id, category, priority, sealed, delivery_count, expires_at)
VALUES (%(notification_id)s, 'demo', '42', 'test', %(priority)s, %(sealed)s, 1,
        now() + make_interval(secs => %(expires_in)s))
"""
_DELIVERY = """
INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority, status, published_seq,
                      expires_at)
VALUES (%(id)s, %(notification_id)s, 'demo', '42', %(channel)s, %(priority)s, %(status)s, 1,
        now() + make_interval(secs => %(expires_in)s))
"""


def add(
    engine: Engine,
    count: int = 1,
    *,
    channel: Channel = Channel.SMS,
    priority: Priority = Priority.LOW,
    status: str = "QUEUED",
    recipient: str | None = "+447700900000",
    title: str = "title",
    body: str = "hello",
    expires_in: float | None = None,
    **columns: Any,
) -> list[str]:
    """Insert `count` deliveries with their notifications; `columns` are laid over the delivery's defaults.

    A value that is a string beginning with `sql:` is put in as an expression.
    """
    ids: list[str] = []
    with engine.begin() as connection:
        for delivery_id, notification_id in zip(mint(count), mint(count), strict=True):
            values = {
                "id": str(delivery_id),
                "notification_id": str(notification_id),
                "channel": channel.value,
                "priority": int(priority),
                "status": "PENDING" if columns else status,
                "sealed": sealed_content(
                    str(notification_id), title, body, {} if recipient is None else {channel.value: recipient}
                ),
                "expires_in": expires_in,
            }
            connection.exec_driver_sql(_NOTIFICATION, values)
            connection.exec_driver_sql(_DELIVERY, values)
            ids.append(str(delivery_id))
    if columns:
        change(engine, ids, status=status, **columns)
    return ids


def change(engine: Engine, ids: list[str], **columns: Any) -> None:
    """Set columns of rows, as `add` does."""
    parts, values = [], {"ids": ids}
    for name, value in columns.items():
        if isinstance(value, str) and value.startswith("sql:"):
            parts.append(f"{name} = {value[4:]}")
        else:
            parts.append(f"{name} = %({name})s")
            values[name] = value
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE delivery SET {', '.join(parts)} WHERE id = ANY(%(ids)s::uuid[])", values
        )


def row(engine: Engine, id_: str) -> dict[str, Any]:
    """Return one delivery's row."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT * FROM delivery WHERE id = %(id)s", {"id": id_})
        return dict(found.mappings().one())


def statuses(engine: Engine, ids: list[str]) -> dict[str, int]:
    """Return how many of `ids` are in which state."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT status, count(*) FROM delivery WHERE id = ANY(%(ids)s::uuid[]) GROUP BY 1", {"ids": ids}
        )
        return {row[0]: row[1] for row in found}


def attempts(engine: Engine, id_: str) -> list[dict[str, Any]]:
    """Return the attempt rows of a delivery, first to last."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT * FROM attempt WHERE delivery_id = %(id)s ORDER BY number", {"id": id_}
        )
        return [dict(entry) for entry in found.mappings()]
