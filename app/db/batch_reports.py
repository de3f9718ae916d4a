"""Who got a batch, who did not and why, and which rows of its list were none. Pages of bounded cost.

A page looks at so many chunks at most, each a range of the primary key, so it may be short or empty and still not
be the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant

CHUNKS_LOOKED_AT = 20

ERRORS = """
SELECT row, user_id, code, message FROM batch_error
WHERE batch_id = %(id)s::uuid AND row > %(after)s ORDER BY row LIMIT %(limit)s
"""

RANGES = """
SELECT number, low::text, high::text FROM batch_chunk
WHERE batch_id = %(id)s::uuid AND number >= %(number)s ORDER BY number LIMIT %(chunks)s
"""

DELIVERIES = """
SELECT d.id::text, n.id::text, n.user_id, d.channel, d.status, d.error_code, d.sent_at, d.delivered_at
FROM notification n
JOIN delivery d ON d.notification_id = n.id AND d.id BETWEEN %(low)s::uuid AND %(high)s::uuid
WHERE n.id BETWEEN %(low)s::uuid AND %(high)s::uuid AND n.batch_id = %(id)s::uuid
  AND d.status = ANY(%(states)s::text[]) AND d.id > %(after)s::uuid
ORDER BY d.id LIMIT %(limit)s
"""

SUPPRESSED = """
SELECT n.id::text, n.user_id, n.suppressed FROM notification n
WHERE n.id BETWEEN %(low)s::uuid AND %(high)s::uuid AND n.batch_id = %(id)s::uuid
  AND n.suppressed <> '[]' AND n.id > %(after)s::uuid
ORDER BY n.id LIMIT %(limit)s
"""


class ErrorRow(NamedTuple):
    """A row of a list that made no notification."""

    row: int
    user_id: str | None
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """A chunk by its number, and the ids that it minted."""

    number: int
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a batch's list of recipients: chunk `number`, beyond the id `after`."""

    tenant_id: str
    batch_id: str
    number: int
    after: str


class Reached(NamedTuple):
    """A delivery of a batch, to whom, and how it stands."""

    id: str
    notification_id: str
    user_id: str
    channel: str
    status: str
    error_code: str | None
    sent_at: datetime | None
    delivered_at: datetime | None


class Withheld(NamedTuple):
    """A notification of a batch with channels that nothing was sent on, and the rules that decided it."""

    id: str
    user_id: str
    suppressed: list[dict[str, str]]


def errors(cursor: Cursor, tenant_id: str, identifier: str, after: int, limit: int) -> list[ErrorRow]:
    """Return up to `limit` rejected rows beyond row `after`."""
    run_as_tenant(cursor, ERRORS, {"tenant_id": tenant_id, "id": identifier, "after": after, "limit": limit})
    return [ErrorRow(*row) for row in cursor]


def ranges(cursor: Cursor, tenant_id: str, identifier: str, number: int) -> list[ChunkRange]:
    """Return the chunks from `number` on, as many as a page looks at."""
    values = {"tenant_id": tenant_id, "id": identifier, "number": number, "chunks": CHUNKS_LOOKED_AT}
    run_as_tenant(cursor, RANGES, values)
    return [ChunkRange(*row) for row in cursor]


def reached(cursor: Cursor, place: Place, chunk: ChunkRange, states: Sequence[str], limit: int) -> list[Reached]:
    """Return up to `limit` deliveries of a chunk in one of `states`, beyond a place."""
    values = _values(place, chunk, limit) | {"states": list(states)}
    run_as_tenant(cursor, DELIVERIES, values)
    return [Reached(*row) for row in cursor]


def withheld(cursor: Cursor, place: Place, chunk: ChunkRange, limit: int) -> list[Withheld]:
    """Return up to `limit` notifications of a chunk of which something was suppressed, beyond a place."""
    run_as_tenant(cursor, SUPPRESSED, _values(place, chunk, limit))
    return [Withheld(*row) for row in cursor]


def _values(place: Place, chunk: ChunkRange, limit: int) -> dict[str, Any]:
    return {
        "tenant_id": place.tenant_id,
        "id": place.batch_id,
        "low": chunk.low,
        "high": chunk.high,
        "after": place.after,
        "limit": limit,
    }
