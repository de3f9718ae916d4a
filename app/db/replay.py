"""Replaying FAILED deliveries: the verb `replay`, FAILED → PENDING, as compare-and-set.

`attempts` is never reset: it numbers the recorded attempts and ties countdowns to the row. A replay allows more
of them instead. A cancel request and the count of rescues are forgotten, since they led to the failure.
`uncertain` stays: that an earlier call may have been accepted is as true as before.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.engine import Connection

_REPLAY = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM delivery WHERE id = ANY(%(ids)s::uuid[]) AND status = 'FAILED'
      AND (expires_at IS NULL OR expires_at > now())
    ORDER BY id FOR UPDATE)
UPDATE delivery d
SET status = 'PENDING', attempts_allowed = LEAST(d.attempts_allowed + %(more)s, 32767), next_attempt_at = now(),
    relay_at = now(), rescues = 0, cancel_requested_at = NULL, error_code = NULL, updated_at = now()
FROM chosen WHERE d.id = chosen.id AND d.id = ANY(%(ids)s::uuid[]) AND d.status = 'FAILED'
RETURNING d.id::text, d.priority, d.tenant_id
"""

_WHY_NOT = """
SELECT id::text, CASE WHEN status = 'FAILED' THEN 'expired' ELSE 'is ' || status END
FROM delivery WHERE id = ANY(%(ids)s::uuid[])
"""

_FAILED_WITH_CODE = """
SELECT id::text FROM delivery
WHERE status = 'FAILED' AND error_code = %(code)s AND (expires_at IS NULL OR expires_at > now())
  AND id > %(after)s::uuid AND id < %(high)s::uuid AND (%(tenant)s::text IS NULL OR tenant_id = %(tenant)s)
ORDER BY id LIMIT %(limit)s
"""


class ReplayedRow(NamedTuple):
    """A delivery that is PENDING again."""

    id: str
    priority: int
    tenant_id: str


def replay(connection: Connection, ids: Sequence[str], more_attempts: int) -> dict[str, ReplayedRow]:
    """Make those of `ids` that are FAILED and not expired PENDING; return them by id."""
    rows = connection.exec_driver_sql(_REPLAY, {"ids": list(ids), "more": more_attempts})
    return {row[0]: ReplayedRow(*row) for row in rows}


def why_not(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Return why each of `ids` could not be replayed; an id that is missing here does not exist."""
    return {row[0]: row[1] for row in connection.exec_driver_sql(_WHY_NOT, {"ids": list(ids)})}


def failed_with_code(
    connection: Connection, code: str, *, after: UUID, high: UUID, tenant_id: str | None, limit: int
) -> list[str]:
    """Return up to `limit` ids in (after, high), in order, of FAILED rows with this error code."""
    values = {"code": code, "after": str(after), "high": str(high), "tenant": tenant_id, "limit": limit}
    return list(connection.exec_driver_sql(_FAILED_WITH_CODE, values).scalars())
