"""What the worker writes about deliveries that it does not send after all: held until later, or called off.

Like every write before a claim they compare the status and the attempts that were seen, lock in id order, and cost
no attempt. The reason stays in the row: what expires while it is held says that quiet hours were why.
"""

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from app.db.deliveries import numbers, texts, uuids

HOLD = """
WITH c AS MATERIALIZED (
    SELECT d.id, w.delay_seconds
    FROM delivery d
    JOIN unnest(%(ids)s::uuid[], %(attempts)s::integer[], %(delays)s::float8[])
         AS w(id, attempts, delay_seconds) ON w.id = d.id
    WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED') AND d.attempts = w.attempts
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE delivery d
SET status = 'PENDING', error_code = 'quiet_hours', updated_at = now(),
    next_attempt_at = GREATEST(d.next_attempt_at, now() + make_interval(secs => c.delay_seconds)),
    relay_at = GREATEST(d.next_attempt_at, now() + make_interval(secs => c.delay_seconds))
FROM c
WHERE d.id = c.id AND d.id = ANY(%(ids)s::uuid[])
RETURNING d.id::text
"""

WITHHOLD = """
WITH c AS MATERIALIZED (
    SELECT d.id, w.code
    FROM delivery d
    JOIN unnest(%(ids)s::uuid[], %(attempts)s::integer[], %(codes)s::text[]) AS w(id, attempts, code)
        ON w.id = d.id
    WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED') AND d.attempts = w.attempts
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE delivery d
SET status = 'CANCELLED', error_code = c.code, last_error = 'called off right before the send', updated_at = now()
FROM c
WHERE d.id = c.id AND d.id = ANY(%(ids)s::uuid[])
RETURNING d.id::text
"""


def hold(connection: Connection, rows: Sequence[tuple[str, int, float]]) -> int:
    """Let rows, as (id, attempts seen, seconds), wait for the end of quiet hours; return how many."""
    values = {
        "ids": uuids([row[0] for row in rows]),
        "attempts": numbers([row[1] for row in rows]),
        "delays": numbers([row[2] for row in rows]),
    }
    return len(connection.exec_driver_sql(HOLD, values).fetchall())


def withhold(connection: Connection, rows: Sequence[tuple[str, int, str]]) -> int:
    """Call rows off, given as (id, attempts seen, code); return how many."""
    values = {
        "ids": uuids([row[0] for row in rows]),
        "attempts": numbers([row[1] for row in rows]),
        "codes": texts([row[2] for row in rows]),
    }
    return len(connection.exec_driver_sql(WITHHOLD, values).fetchall())
