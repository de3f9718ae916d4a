"""The expander's statements: take a batch, read its list, write a chunk down, call a chunk off, count one.

Invariants: whoever works on a batch holds the lock of its row until the commit, so of two expanders one takes
another batch. A chunk's rows, its mark, the counts and the place to go on from are one transaction: it is there
as a whole or not at all. Nobody waits for a batch: the choice skips those that are locked.

The choice sees all tenants, so it runs as the owner of the tables; everything after it is held to the batch's
tenant, as a request would be (`as_tenant`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import psycopg2
import psycopg2.extensions
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from app.db.requests import Cursor

_RUNNING = """(SELECT count(*) FROM batch o WHERE o.tenant_id = b.tenant_id AND o.ended_at IS NULL
               AND o.state IN ('RUNNING', 'CANARY_WAIT'))"""

OUTAGES = (psycopg2.OperationalError, psycopg2.InterfaceError, SQLAlchemyError)
"""What says nothing about a batch: the database was cut off, too slow, or let another one go first."""

# In turn over tenants, and over the batches of a tenant; what is being called off goes first.
TAKE = f"""
SELECT b.tenant_id, b.id::text, b.state, b.source, b.category, b.priority, b.channels, b.template,
       b.template_version, b.sealed, b.metadata, b.segment, b.scheduled_at, b.canary, b.canary_state, b.total,
       b.read_count, b.made_count, b.rejected_count, b.suppressed, b.chunk_count,
       b.last_millisecond, b.after_user, b.last_user, b.upload_format, b.upload_columns, b.upload_length,
       b.read_offset, b.created_at, b.started_at,
       extract(epoch FROM b.expires_at - greatest(b.scheduled_at, now()))::float8
FROM batch b
WHERE b.ended_at IS NULL
  AND (b.state IN ('RUNNING', 'CANCELLING') OR (b.state = 'CANARY_WAIT' AND b.canary_until <= now())
       OR (b.state = 'ACCEPTED' AND {_RUNNING} < %(running_limit)s))
ORDER BY b.state = 'CANCELLING' DESC,
         (SELECT max(o.served_at) FROM batch o WHERE o.tenant_id = b.tenant_id AND o.ended_at IS NULL) NULLS FIRST,
         b.served_at NULLS FIRST, b.id
LIMIT 1
FOR UPDATE OF b SKIP LOCKED
"""  # noqa: S608  only constants of this module are put in

AS_TENANT = "SET LOCAL ROLE arauto_api; SELECT set_config('arauto.tenant', %(tenant_id)s, true)"

# Two that promote batches of one tenant at the same time must not both find the last free place.
ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('batch of ' || %(tenant_id)s, 0))"
PROMOTE = f"""
UPDATE batch b SET served_at = clock_timestamp(),
    state = CASE WHEN {_RUNNING} < %(running_limit)s THEN 'RUNNING' ELSE b.state END,
    started_at = CASE WHEN {_RUNNING} < %(running_limit)s THEN now() END
WHERE b.tenant_id = %(tenant_id)s AND b.id = %(id)s::uuid
"""  # noqa: S608

MEASURED = """
UPDATE batch SET total = %(total)s, last_user = %(last_user)s
WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid AND last_user IS NULL
"""

PIECES = """
SELECT start, sealed FROM batch_piece
WHERE batch_id = %(id)s::uuid AND start + length > %(offset)s AND start >= %(offset)s - %(longest)s
ORDER BY start LIMIT %(limit)s
"""

SEEN = """
INSERT INTO batch_seen (tenant_id, batch_id, recipient)
SELECT %(tenant_id)s, %(id)s::uuid, r FROM unnest(%(recipients)s::bytea[]) AS r ORDER BY r
ON CONFLICT DO NOTHING
RETURNING recipient
"""

REJECT = """
INSERT INTO batch_error (tenant_id, batch_id, row, user_id, code, message)
SELECT %(tenant_id)s, %(id)s::uuid, e.row, e.user_id, e.code, e.message
FROM unnest(%(rows)s::bigint[], %(user_ids)s::text[], %(codes)s::text[], %(messages)s::text[])
     AS e (row, user_id, code, message)
"""

CHUNK = """
INSERT INTO batch_chunk (tenant_id, batch_id, number, low, high, made_count, delivery_count, states, next_count_at)
VALUES (%(tenant_id)s, %(id)s::uuid, %(number)s, %(low)s::uuid, %(high)s::uuid, %(made)s, %(deliveries)s,
        %(states)s::jsonb, now() + interval '5 seconds')
"""

ADVANCE = """
UPDATE batch
SET state = %(state)s, reason = %(reason)s, served_at = clock_timestamp(),
    read_count = read_count + %(made)s + %(rejected)s, made_count = made_count + %(made)s,
    rejected_count = rejected_count + %(rejected)s, delivery_count = delivery_count + %(deliveries)s,
    suppressed = %(suppressed)s::jsonb, chunk_count = %(chunk_count)s,
    last_millisecond = %(last_millisecond)s, after_user = %(after_user)s,
    read_offset = %(read_offset)s, upload_columns = %(columns)s::text[], canary_state = %(canary_state)s,
    canary_until = CASE WHEN %(state)s = 'CANARY_WAIT'
                        THEN greatest(scheduled_at, now()) + make_interval(secs => %(canary_seconds)s)
                        ELSE canary_until END,
    expanded_at = CASE WHEN %(state)s IN ('COMPLETED', 'FAILED') THEN now() END,
    ended_at = CASE WHEN %(state)s IN ('COMPLETED', 'FAILED') THEN now() END
WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid
"""

DROP_READ = """
DELETE FROM batch_piece WHERE batch_id = %(id)s::uuid AND start + length <= %(offset)s
"""

SETTLE = """
UPDATE batch
SET state = %(state)s, reason = CASE WHEN %(state)s = 'CANCELLED' THEN reason ELSE %(reason)s END,
    canary_state = coalesce(%(canary_state)s, canary_state),
    served_at = clock_timestamp(),
    canary_until = CASE WHEN %(state)s = 'CANARY_WAIT' THEN now() + make_interval(secs => %(wait_seconds)s)
                        ELSE canary_until END,
    ended_at = CASE WHEN %(state)s IN ('CANCELLED', 'FAILED') THEN now() END
WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid
"""

_OF_CHUNK = """d.id BETWEEN %(low)s::uuid AND %(high)s::uuid AND d.notification_id IN (
        SELECT n.id FROM notification n
        WHERE n.id BETWEEN %(low)s::uuid AND %(high)s::uuid AND n.batch_id = %(id)s::uuid)"""

COUNT = f"SELECT d.status, count(*) FROM delivery d WHERE {_OF_CHUNK} GROUP BY d.status"  # noqa: S608

UNCANCELLED = """
SELECT number, low::text, high::text FROM batch_chunk
WHERE batch_id = %(id)s::uuid AND cancelled_at IS NULL ORDER BY number LIMIT %(limit)s
"""

# The rows are locked in id order and waited for, as every writer of several deliveries does; what the lock returns
# is the newest state, so both updates ask `t.status`.
CANCEL_CHUNK = f"""
WITH target AS MATERIALIZED (
    SELECT d.id, d.status FROM delivery d
    WHERE d.status IN ('PENDING', 'QUEUED', 'SENDING', 'UNKNOWN') AND {_OF_CHUNK}
    ORDER BY d.id FOR UPDATE OF d
), cancelled AS (
    UPDATE delivery d
    SET status = 'CANCELLED', cancel_requested_at = now(), updated_at = now()
    FROM target t
    WHERE d.id = t.id AND d.id BETWEEN %(low)s::uuid AND %(high)s::uuid
      AND t.status IN ('PENDING', 'QUEUED')
    RETURNING d.id
), asked AS (
    UPDATE delivery d
    SET cancel_requested_at = now(), updated_at = now()
    FROM target t
    WHERE d.id = t.id AND d.id BETWEEN %(low)s::uuid AND %(high)s::uuid
      AND t.status IN ('SENDING', 'UNKNOWN') AND d.cancel_requested_at IS NULL
    RETURNING d.id
)
SELECT count(*) FROM cancelled
"""  # noqa: S608

CANCELLED_CHUNK = """
UPDATE batch_chunk
SET states = %(states)s::jsonb, counted_at = now(), cancelled_at = now(),
    next_count_at = now() + interval '5 seconds'
WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s::uuid AND number = %(number)s
"""

CHUNKS = """
SELECT number, low::text, high::text FROM batch_chunk WHERE batch_id = %(id)s::uuid ORDER BY number
"""

OUT_FOR = """
SELECT extract(epoch FROM now() - greatest(max(made_at), %(scheduled_at)s))::float8
FROM batch_chunk WHERE batch_id = %(id)s::uuid
"""

# An error of ours must not be met again at every turn: the batch stands still, and says so.
SET_ASIDE = """
UPDATE batch SET state = 'PAUSED', reason = 'error'
WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid AND state IN ('ACCEPTED', 'RUNNING', 'CANARY_WAIT')
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A batch whose row is locked. `seconds_left` is until its deadline, None without one."""

    tenant_id: str
    id: str
    state: str
    source: str
    category: str
    priority: int
    channels: list[str]
    template: str | None
    template_version: int | None
    sealed: memoryview
    metadata: dict[str, Any]
    segment: dict[str, Any] | None
    scheduled_at: datetime | None
    canary: dict[str, Any] | None
    canary_state: str
    total: int | None
    read_count: int
    made_count: int
    rejected_count: int
    suppressed: dict[str, int]
    chunk_count: int
    last_millisecond: int
    after_user: str
    last_user: str | None
    upload_format: str | None
    upload_columns: list[str] | None
    upload_length: int
    read_offset: int
    created_at: datetime
    started_at: datetime | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Range:
    """A chunk by its number, and the ids that it minted."""

    number: int
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row of a list that made no notification."""

    row: int
    user_id: str | None
    code: str
    message: str


def cursor_of(connection: Connection) -> Cursor:
    """Return the driver's own cursor, inside the transaction of `connection`."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg2.extensions.connection)
    return driver.cursor()


def take(cursor: Cursor, running_limit: int) -> Work | None:
    """Lock the batch whose turn it is and go on as its tenant; None when nothing is to be done now."""
    cursor.execute(TAKE, {"running_limit": running_limit})
    row = cursor.fetchone()
    if row is None:
        return None
    work = Work(*row)
    go_as_tenant(cursor, work.tenant_id)
    return work


def go_as_tenant(cursor: Cursor, tenant_id: str) -> None:
    """Hold the rest of a transaction to one tenant."""
    cursor.execute(AS_TENANT, {"tenant_id": tenant_id})


def promote(cursor: Cursor, work: Work, running_limit: int) -> None:
    """Let a batch run if its tenant has a place free; else it has had its turn."""
    values = {"tenant_id": work.tenant_id, "id": work.id, "running_limit": running_limit}
    cursor.execute(ONE_AT_A_TIME, values)
    cursor.execute(PROMOTE, values)


def measured(cursor: Cursor, work: Work, total: int, last_user: str) -> None:
    """Keep what a segment was measured to be, unless somebody else did meanwhile."""
    cursor.execute(MEASURED, {"tenant_id": work.tenant_id, "id": work.id, "total": total, "last_user": last_user})


def pieces(cursor: Cursor, work: Work, offset: int, longest: int, limit: int) -> list[tuple[int, bytes]]:
    """Return parts of a list from `offset` on, as (start, sealed); `longest` is the length of the longest part."""
    cursor.execute(PIECES, {"id": work.id, "offset": offset, "longest": longest, "limit": limit})
    return [(row[0], bytes(row[1])) for row in cursor]


def first_seen(cursor: Cursor, work: Work, recipients: Sequence[bytes]) -> set[bytes]:
    """Return those of `recipients` that the list did not name before, and remember them."""
    cursor.execute(SEEN, {"tenant_id": work.tenant_id, "id": work.id, "recipients": list(recipients)})
    return {bytes(row[0]) for row in cursor}


def reject(cursor: Cursor, work: Work, rejected: Sequence[Rejected]) -> None:
    """Write down why rows made no notification."""
    cursor.execute(
        REJECT,
        {
            "tenant_id": work.tenant_id,
            "id": work.id,
            "rows": [each.row for each in rejected],
            "user_ids": [each.user_id for each in rejected],
            "codes": [each.code for each in rejected],
            "messages": [each.message for each in rejected],
        },
    )


def add_chunk(cursor: Cursor, work: Work, values: Mapping[str, Any]) -> None:
    """Mark a chunk; `values` has number, low, high, made, deliveries and states."""
    cursor.execute(CHUNK, {"tenant_id": work.tenant_id, "id": work.id, **values})


def advance(cursor: Cursor, work: Work, values: Mapping[str, Any]) -> None:
    """Move a batch on by a chunk; `values` are the other parameters of `ADVANCE`."""
    cursor.execute(ADVANCE, {"tenant_id": work.tenant_id, "id": work.id, **values})


def drop_read(cursor: Cursor, work: Work, offset: int) -> None:
    """Delete the parts of a list that were read to their end."""
    cursor.execute(DROP_READ, {"id": work.id, "offset": offset})


def settle(
    cursor: Cursor,
    work: Work,
    state: str,
    reason: str | None,
    *,
    canary_state: str | None = None,
    wait_seconds: float = 0.0,
) -> None:
    """Move a batch into another state without a chunk."""
    cursor.execute(
        SETTLE,
        {
            "tenant_id": work.tenant_id,
            "id": work.id,
            "state": state,
            "reason": reason,
            "canary_state": canary_state,
            "wait_seconds": wait_seconds,
        },
    )


def count(cursor: Cursor, batch_id: str, chunk: Range) -> dict[str, int]:
    """Return how many deliveries of a chunk are in which state."""
    cursor.execute(COUNT, {"id": batch_id, "low": chunk.low, "high": chunk.high})
    return {status: number for status, number in cursor}  # noqa: C416  pairs of the driver's own tuple type


def uncancelled(cursor: Cursor, work: Work, limit: int) -> list[Range]:
    """Return the first chunks that were not called off yet."""
    cursor.execute(UNCANCELLED, {"id": work.id, "limit": limit})
    return [Range(*row) for row in cursor]


def cancel_chunk(cursor: Cursor, work: Work, chunk: Range) -> int:
    """Call a chunk off; return how many deliveries that cancelled."""
    cursor.execute(CANCEL_CHUNK, {"id": work.id, "low": chunk.low, "high": chunk.high})
    (cancelled,) = cursor.fetchone() or (0,)
    states = orjson.dumps(count(cursor, work.id, chunk)).decode()
    cursor.execute(
        CANCELLED_CHUNK,
        {"tenant_id": work.tenant_id, "id": work.id, "number": chunk.number, "states": states},
    )
    return int(cancelled)


def chunks(cursor: Cursor, work: Work) -> list[Range]:
    """Return all chunks of a batch."""
    cursor.execute(CHUNKS, {"id": work.id})
    return [Range(*row) for row in cursor]


def out_for(cursor: Cursor, work: Work) -> float:
    """Return for how many seconds the newest chunk could be sent."""
    cursor.execute(OUT_FOR, {"id": work.id, "scheduled_at": work.scheduled_at})
    (seconds,) = cursor.fetchone() or (None,)
    return float(seconds or 0.0)


def set_aside(cursor: Cursor, work: Work) -> None:
    """Pause a batch that could not be worked on."""
    cursor.execute(SET_ASIDE, {"tenant_id": work.tenant_id, "id": work.id})
