"""Deletes from what is not partitioned; each call is one batch in its caller's transaction."""

from sqlalchemy.engine import Connection

_KEYS = """
DELETE FROM idempotency_key WHERE (tenant_id, route, key) IN (
    SELECT tenant_id, route, key FROM idempotency_key
    WHERE created_at < now() - make_interval(days => %(days)s)
    ORDER BY created_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
"""


def idempotency_keys(connection: Connection, days: int, batch: int) -> int:
    """Delete up to `batch` keys older than `days`; return how many."""
    return connection.exec_driver_sql(_KEYS, {"days": days, "batch": batch}).rowcount
