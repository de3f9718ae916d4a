"""Batches as a tenant's requests see them: made, uploaded, started, looked at, paused, called off.

Each function sends one message of a request, held to its tenant (`app.db.tenancy`). Every statement may be sent
twice: what the first sending did is found by the second. Whoever expands a batch locks its row for one chunk, so a
change of its state waits for that chunk at most, and nothing is made of a batch after its change was committed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.db.notifications import Kept, find_key
from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant

_COLUMNS = """b.id::text, b.state, b.reason, b.source, b.category, b.priority, b.channels, b.template,
    b.template_version, b.metadata, b.segment, b.scheduled_at, b.expires_in, b.expires_at, b.canary,
    b.canary_state, b.canary_until, b.total, b.read_count, b.made_count, b.delivery_count, b.rejected_count,
    b.suppressed, b.chunk_count, b.upload_format, b.upload_length, b.read_offset, b.created_by, b.created_at,
    b.started_at, b.expanded_at, b.ended_at"""

# The sums over chunks are a few hundred small rows for a million recipients. They add up whenever they are taken:
# a chunk's states are counted in one statement, and all of its deliveries are made in one.
_STATES = """(SELECT coalesce(json_object_agg(t.key, t.count), '{}') FROM (
        SELECT s.key, sum(s.value::bigint) AS count
        FROM batch_chunk c, jsonb_each_text(c.states) AS s
        WHERE c.tenant_id = b.tenant_id AND c.batch_id = b.id GROUP BY s.key) AS t),
    (SELECT min(c.counted_at) FROM batch_chunk c WHERE c.tenant_id = b.tenant_id AND c.batch_id = b.id), now()"""

# The key guards everything, as it does for one notification. A tenant at its limit stores nothing, and a repeated
# request finds its answer all the same.
CREATE = """
WITH claimed AS (
    INSERT INTO idempotency_key (tenant_id, route, key, fingerprint, notification_id, answer)
    SELECT %(tenant_id)s, %(route)s, %(key)s, %(fingerprint)s, %(id)s::uuid, %(answer)s
    WHERE (SELECT count(*) FROM batch WHERE tenant_id = %(tenant_id)s AND ended_at IS NULL) < %(open_limit)s
    ON CONFLICT DO NOTHING
    RETURNING answer
), made AS (
    INSERT INTO batch (tenant_id, id, state, source, category, priority, channels, template, template_version,
                       sealed, metadata, segment, scheduled_at, expires_in, expires_at, canary, canary_state,
                       total, upload_format, upload_length, created_by, created_at)
    SELECT %(tenant_id)s, %(id)s::uuid, %(state)s, %(source)s, %(category)s, %(priority)s, %(channels)s::text[],
           %(template)s, %(template_version)s, %(sealed)s, %(metadata)s::jsonb, %(segment)s::jsonb,
           %(scheduled_at)s::timestamptz, %(expires_in)s,
           CASE WHEN %(state)s = 'ACCEPTED'
                THEN greatest(%(scheduled_at)s::timestamptz, now()) + make_interval(secs => %(expires_in)s) END,
           %(canary)s::jsonb, %(canary_state)s, %(total)s, %(upload_format)s, %(upload_length)s, %(created_by)s,
           %(created_at)s::timestamptz
    FROM claimed
), pieces AS (
    INSERT INTO batch_piece (tenant_id, batch_id, start, length, sealed)
    SELECT %(tenant_id)s, %(id)s::uuid, p.start, p.length, p.sealed
    FROM claimed, unnest(%(starts)s::bigint[], %(lengths)s::integer[], %(parts)s::bytea[])
         AS p (start, length, sealed)
)
SELECT answer FROM claimed
"""

FIND = f"SELECT {_COLUMNS}, {_STATES} FROM batch b WHERE b.id = %(id)s::uuid"  # noqa: S608

PAGE = f"""
SELECT {_COLUMNS}, {_STATES} FROM batch b
WHERE %(before)s::uuid IS NULL OR b.id < %(before)s::uuid
ORDER BY b.id DESC LIMIT %(limit)s
"""  # noqa: S608

# The length of the batch is compared and moved in one step: of two that send the same piece one stores it.
APPEND = """
WITH moved AS (
    UPDATE batch SET upload_length = upload_length + %(length)s, total = coalesce(total, 0) + %(rows)s
    WHERE id = %(id)s::uuid AND state = 'UPLOADING' AND upload_length = %(start)s
      AND upload_length + %(length)s <= %(upload_limit)s
    RETURNING upload_length
), stored AS (
    INSERT INTO batch_piece (tenant_id, batch_id, start, length, whole, digest, sealed)
    SELECT %(tenant_id)s, %(id)s::uuid, p.start, p.length, CASE WHEN p.start = %(start)s THEN %(length)s END,
           CASE WHEN p.start = %(start)s THEN %(digest)s::bytea END, p.sealed
    FROM moved, unnest(%(starts)s::bigint[], %(lengths)s::integer[], %(parts)s::bytea[])
         AS p (start, length, sealed)
)
SELECT upload_length FROM moved
"""

UPLOADED = """
SELECT b.state, b.upload_length, p.digest, p.whole FROM batch b
LEFT JOIN batch_piece p ON p.tenant_id = b.tenant_id AND p.batch_id = b.id AND p.start = %(start)s
WHERE b.id = %(id)s::uuid
"""

START = """
UPDATE batch
SET state = 'ACCEPTED',
    expires_at = greatest(scheduled_at, now()) + make_interval(secs => expires_in)
WHERE id = %(id)s::uuid AND state = 'UPLOADING' AND upload_length > 0
"""

PAUSE = """
UPDATE batch SET state = 'PAUSED', reason = 'user'
WHERE id = %(id)s::uuid AND state IN ('ACCEPTED', 'RUNNING', 'CANARY_WAIT')
"""

# Whoever resumes what a canary has stopped takes it on themselves.
RESUME = """
UPDATE batch
SET state = CASE WHEN started_at IS NULL THEN 'ACCEPTED' WHEN canary_state = 'WAITING' THEN 'CANARY_WAIT'
                 ELSE 'RUNNING' END,
    canary_state = CASE canary_state WHEN 'STOPPED' THEN 'WAIVED' ELSE canary_state END, reason = NULL
WHERE id = %(id)s::uuid AND state = 'PAUSED'
"""

CANCEL = """
UPDATE batch
SET state = CASE WHEN chunk_count = 0 THEN 'CANCELLED' ELSE 'CANCELLING' END, reason = %(reason)s,
    ended_at = CASE WHEN chunk_count = 0 THEN now() END
WHERE id = %(id)s::uuid AND state = ANY(%(states)s::text[])
"""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as its tenant may see it. `states` counts deliveries, as of `counted_at` at the earliest."""

    id: str
    state: str
    reason: str | None
    source: str
    category: str
    priority: int
    channels: list[str]
    template: str | None
    template_version: int | None
    metadata: dict[str, Any]
    segment: dict[str, Any] | None
    scheduled_at: datetime | None
    expires_in: int | None
    expires_at: datetime | None
    canary: dict[str, Any] | None
    canary_state: str
    canary_until: datetime | None
    total: int | None
    read_count: int
    made_count: int
    delivery_count: int
    rejected_count: int
    suppressed: dict[str, int]
    chunk_count: int
    upload_format: str | None
    upload_length: int
    read_offset: int
    created_by: str
    created_at: datetime
    started_at: datetime | None
    expanded_at: datetime | None
    ended_at: datetime | None
    states: dict[str, int]
    counted_at: datetime | None
    looked_at: datetime


@dataclass(frozen=True, slots=True)
class Uploaded:
    """How far an upload is, and the piece that begins where somebody asked, if one does."""

    state: str
    length: int
    digest: bytes | None
    whole: int | None


def create(cursor: Cursor, values: Mapping[str, Any]) -> tuple[str | None, Kept | None]:
    """Store a batch; return its answer, or what its key stood for before, or neither at the tenant's limit."""
    run_as_tenant(cursor, CREATE, values)
    row = cursor.fetchone()
    if row is not None:
        return row[0], None
    return None, find_key(cursor, values["tenant_id"], values["route"], values["key"])


def find(cursor: Cursor, tenant_id: str, identifier: str) -> BatchRow | None:
    """Return a tenant's batch, or None."""
    run_as_tenant(cursor, FIND, {"tenant_id": tenant_id, "id": identifier})
    row = cursor.fetchone()
    return None if row is None else BatchRow(*row)


def page(cursor: Cursor, tenant_id: str, before: str | None, limit: int) -> list[BatchRow]:
    """Return up to `limit` of a tenant's batches, newest first, older than the one with the id `before`."""
    run_as_tenant(cursor, PAGE, {"tenant_id": tenant_id, "before": before, "limit": limit})
    return [BatchRow(*row) for row in cursor]


def append(cursor: Cursor, values: Mapping[str, Any]) -> int | None:
    """Store a piece at the end of an upload; return its new length, None when it does not belong there."""
    run_as_tenant(cursor, APPEND, values)
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def uploaded(cursor: Cursor, tenant_id: str, identifier: str, start: int) -> Uploaded | None:
    """Return how far an upload is and which piece begins at `start`; None for no such batch."""
    run_as_tenant(cursor, UPLOADED, {"tenant_id": tenant_id, "id": identifier, "start": start})
    row = cursor.fetchone()
    return None if row is None else Uploaded(row[0], row[1], None if row[2] is None else bytes(row[2]), row[3])


def start(cursor: Cursor, tenant_id: str, identifier: str) -> bool:
    """Let an upload be expanded; tell whether that changed anything."""
    run_as_tenant(cursor, START, {"tenant_id": tenant_id, "id": identifier})
    return cursor.rowcount == 1


def pause(cursor: Cursor, tenant_id: str, identifier: str) -> bool:
    """Stop the expansion; tell whether that changed anything."""
    run_as_tenant(cursor, PAUSE, {"tenant_id": tenant_id, "id": identifier})
    return cursor.rowcount == 1


def resume(cursor: Cursor, tenant_id: str, identifier: str) -> bool:
    """Go on where a pause began; tell whether that changed anything."""
    run_as_tenant(cursor, RESUME, {"tenant_id": tenant_id, "id": identifier})
    return cursor.rowcount == 1


def cancel(cursor: Cursor, tenant_id: str, identifier: str, states: Sequence[str], reason: str) -> bool:
    """Call a batch off that is in one of `states`; tell whether that changed anything."""
    values = {"tenant_id": tenant_id, "id": identifier, "states": list(states), "reason": reason}
    run_as_tenant(cursor, CANCEL, values)
    return cursor.rowcount == 1
