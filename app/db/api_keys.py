"""API keys: made, listed, replaced, revoked and looked up. A key itself is never stored, only its digest.

Every statement may be sent twice with the same values, since a request is repeated when its connection turns out
to be dead: what the first sending did is found by the second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.db.audit import entry_of
from app.db.requests import Cursor
from app.db.tenancy import run_as_holder, run_as_tenant

_SHOWN = """id::text, prefix, name, scopes, created_by, created_at, expires_at, revoked_at, replaced_by::text,
       last_used_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'REVOKED'
            WHEN expires_at <= now() THEN 'EXPIRED'
            WHEN replaced_by IS NOT NULL THEN 'REPLACED'
            ELSE 'ACTIVE' END"""

CREATE = f"""
WITH made AS (
    INSERT INTO api_key (id, tenant_id, prefix, digest, name, scopes, created_by, expires_at)
    VALUES (%(id)s::uuid, %(tenant_id)s, %(prefix)s, %(digest)s, %(name)s, %(scopes)s::text[], %(created_by)s,
            now() + make_interval(secs => %(expires_in)s))
    ON CONFLICT (id) DO NOTHING
    RETURNING *
), {entry_of("made")}
SELECT {_SHOWN} FROM made
UNION ALL
SELECT {_SHOWN} FROM api_key WHERE id = %(id)s::uuid AND NOT EXISTS (SELECT FROM made)
"""  # noqa: S608  put together of constants

FIND = f"SELECT {_SHOWN} FROM api_key WHERE id = %(id)s::uuid"  # noqa: S608

PAGE = f"""
SELECT {_SHOWN} FROM api_key
WHERE %(before)s::uuid IS NULL OR id < %(before)s::uuid
ORDER BY id DESC
LIMIT %(limit)s
"""  # noqa: S608

# The lock returns the newest state of the row, so of two that replace one key at the same time the second finds it
# replaced. The new key lives as long as the old one was meant to, from now on.
ROTATE = f"""
WITH old AS MATERIALIZED (
    SELECT * FROM api_key WHERE id = %(id)s::uuid FOR UPDATE
), made AS (
    INSERT INTO api_key (id, tenant_id, prefix, digest, name, scopes, created_by, expires_at)
    SELECT %(new_id)s::uuid, tenant_id, %(prefix)s, %(digest)s, name, scopes, %(created_by)s,
           now() + (expires_at - created_at)
    FROM old
    WHERE revoked_at IS NULL AND replaced_by IS NULL AND (expires_at IS NULL OR expires_at > now())
    RETURNING *
), ended AS (
    UPDATE api_key k
    SET replaced_by = made.id, expires_at = least(k.expires_at, now() + make_interval(secs => %(overlap)s))
    FROM made
    WHERE k.id = %(id)s::uuid
), {entry_of("made")}
SELECT {_SHOWN} FROM made
"""  # noqa: S608

# Revoking again changes nothing, and so leaves no second entry.
REVOKE = f"""
WITH ended AS (
    UPDATE api_key SET revoked_at = coalesce(revoked_at, now()) WHERE id = %(id)s::uuid
    RETURNING *
), now_ended AS (
    SELECT FROM ended WHERE revoked_at = now()
), {entry_of("now_ended")}
SELECT {_SHOWN} FROM ended
"""  # noqa: S608

LOOK_UP = """
SELECT id::text, tenant_id, digest, scopes, revoked_at IS NOT NULL,
       extract(epoch FROM expires_at - now())::double precision
FROM api_key WHERE prefix = %(prefix)s
"""

# Upkeep of all tenants at once, so it runs as the owner of the table and not behind the policies. Two processes
# that write the same keys lock them in the order of their ids, so that neither waits for the other for ever.
TOUCH = """
WITH used AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(ages)s::double precision[]) AS u (id, age)
), locked AS MATERIALIZED (
    SELECT id FROM api_key WHERE id IN (SELECT id FROM used) ORDER BY id FOR NO KEY UPDATE
)
UPDATE api_key k
SET last_used_at = greatest(k.last_used_at, now() - make_interval(secs => u.age))
FROM used u, locked l
WHERE k.id = u.id AND l.id = u.id
"""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key as its tenant may see it. `status` is as of now, by the database's clock."""

    id: str
    prefix: str
    name: str
    scopes: list[str]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    replaced_by: str | None
    last_used_at: datetime | None
    status: str


@dataclass(frozen=True, slots=True)
class Secret:
    """What is needed to check a key that was shown. `seconds_left` is None for one without an end."""

    id: str
    tenant_id: str
    digest: bytes
    scopes: list[str]
    is_revoked: bool
    seconds_left: float | None


def create(cursor: Cursor, values: Mapping[str, Any]) -> KeyRow:
    """Store a key; `values` are the parameters of `CREATE`."""
    run_as_tenant(cursor, CREATE, values)
    (row,) = cursor.fetchall()
    return KeyRow(*row)


def find(cursor: Cursor, tenant_id: str, identifier: str) -> KeyRow | None:
    """Return a tenant's key by its id, or None."""
    run_as_tenant(cursor, FIND, {"tenant_id": tenant_id, "id": identifier})
    row = cursor.fetchone()
    return None if row is None else KeyRow(*row)


def page(cursor: Cursor, tenant_id: str, before: str | None, limit: int) -> list[KeyRow]:
    """Return up to `limit` of a tenant's keys, newest first, older than the one with the id `before`."""
    run_as_tenant(cursor, PAGE, {"tenant_id": tenant_id, "before": before, "limit": limit})
    return [KeyRow(*row) for row in cursor]


def rotate(cursor: Cursor, values: Mapping[str, Any]) -> KeyRow | None:
    """Store a key in the place of another; None when that one has ended, was replaced or does not exist."""
    run_as_tenant(cursor, ROTATE, values)
    row = cursor.fetchone()
    return None if row is None else KeyRow(*row)


def revoke(cursor: Cursor, values: Mapping[str, Any]) -> KeyRow | None:
    """End a tenant's key, once and for all; None when there is none."""
    run_as_tenant(cursor, REVOKE, values)
    row = cursor.fetchone()
    return None if row is None else KeyRow(*row)


def look_up(cursor: Cursor, prefix: str) -> Secret | None:
    """Return what to check a key of this prefix against, whichever tenant's it is, or None."""
    run_as_holder(cursor, LOOK_UP, {"prefix": prefix})
    row = cursor.fetchone()
    return None if row is None else Secret(row[0], row[1], bytes(row[2]), *row[3:])


def touch(cursor: Cursor, ages: Mapping[str, float]) -> None:
    """Write when keys were last used; `ages` says for each id how many seconds ago."""
    cursor.execute(TOUCH, {"ids": list(ages), "ages": list(ages.values())})
