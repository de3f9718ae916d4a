"""Ordering: a later delivery of a user and channel waits for the earlier ones, for a bounded time.

`order_at` is when an ordered delivery was first due, by the database's clock, and never changes; NULL is not
ordered. An earlier one holds a later one up while it is open and its `order_at` lies less than the bound back, so
a retry keeps its place. It is looked at when a worker has loaded the row: an earlier one that has ended stays so,
and a bound that has passed stays passed, so what was free then is free at the call.

What waits is PENDING with a `relay_at` of its own while `next_attempt_at` stays: so a wake never hastens a retry
or quiet hours. A lost wake costs at most RECHECK_SECONDS.
"""

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from app.db.deliveries import numbers, uuids

RECHECK_SECONDS = 5.0

READ_OPTIONS = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
"""For the connections that look and wake: statistics of a young partition say that it is empty, and reading all of
it for each row of a chunk then costs more than sending them."""

# One look into the partial index a partition, which holds only what is open and ordered.
BLOCKED = """
SELECT d.id::text, extract(epoch FROM p.until - now())::float8
FROM delivery d
CROSS JOIN LATERAL (
    SELECT max(e.order_at) + make_interval(secs => %(bound_seconds)s) AS until
    FROM delivery e
    WHERE e.tenant_id = d.tenant_id AND e.user_id = d.user_id AND e.channel = d.channel
      AND e.order_at IS NOT NULL AND e.status IN ('PENDING', 'QUEUED', 'SENDING', 'UNKNOWN')
      AND e.order_at > now() - make_interval(secs => %(bound_seconds)s)
      AND (e.order_at, e.notification_id) < (d.order_at, d.notification_id)) AS p
WHERE d.id = ANY(%(ids)s::uuid[]) AND d.order_at IS NOT NULL AND p.until IS NOT NULL
"""

WAIT = """
WITH c AS MATERIALIZED (
    SELECT d.id, w.seconds
    FROM delivery d
    JOIN unnest(%(ids)s::uuid[], %(attempts)s::integer[], %(seconds)s::float8[]) AS w(id, attempts, seconds)
         ON w.id = d.id
    WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED') AND d.attempts = w.attempts
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE delivery d
SET status = 'PENDING', relay_at = now() + make_interval(secs => c.seconds), updated_at = now()
FROM c
WHERE d.id = c.id AND d.id = ANY(%(ids)s::uuid[])
RETURNING d.id::text
"""

# The first that waits behind each of `ids`. A row that is locked is being looked at by somebody else.
WAKE = """
WITH next AS MATERIALIZED (
    SELECT n.id
    FROM (SELECT DISTINCT tenant_id, user_id, channel FROM delivery
          WHERE id = ANY(%(ids)s::uuid[]) AND order_at IS NOT NULL) AS p
    CROSS JOIN LATERAL (
        SELECT e.id FROM delivery e
        WHERE e.tenant_id = p.tenant_id AND e.user_id = p.user_id AND e.channel = p.channel
          AND e.order_at IS NOT NULL AND e.status IN ('PENDING', 'QUEUED', 'SENDING', 'UNKNOWN')
        ORDER BY e.order_at, e.notification_id LIMIT 1) AS f
    JOIN delivery n ON n.id = f.id
    WHERE n.status = 'PENDING' AND n.relay_at > greatest(n.next_attempt_at, now())
    FOR UPDATE OF n SKIP LOCKED
)
UPDATE delivery d SET relay_at = greatest(d.next_attempt_at, now()) FROM next WHERE d.id = next.id
RETURNING d.priority
"""


def blocked(connection: Connection, ids: Sequence[str], bound_seconds: float) -> dict[str, float]:
    """Return those of `ids` that have to wait, each with the seconds after which it need not at the latest."""
    found = connection.exec_driver_sql(BLOCKED, {"ids": uuids(ids), "bound_seconds": bound_seconds})
    return {row[0]: row[1] for row in found}


def wait(connection: Connection, pairs: Sequence[tuple[str, int]], seconds: Sequence[float]) -> int:
    """Put rows, as (id, attempts), back for so many seconds each, RECHECK_SECONDS at most; return how many."""
    values = {
        "ids": uuids([pair[0] for pair in pairs]),
        "attempts": numbers([pair[1] for pair in pairs]),
        "seconds": numbers([min(max(each, 0.0), RECHECK_SECONDS) for each in seconds]),
    }
    return len(connection.exec_driver_sql(WAIT, values).fetchall())


def wake(connection: Connection, ids: Sequence[str]) -> list[int]:
    """Make due what waits first behind `ids`, or is first itself; return the priorities of what was woken."""
    return [row[0] for row in connection.exec_driver_sql(WAKE, {"ids": uuids(ids)})]
