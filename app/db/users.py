"""Users: written one by one or set-wise, read, listed and looked up by the blind index of an address.

Each function is one message to the server, held to its tenant by `app.db.tenancy`. Addresses come and go sealed:
nothing here could tell what they are.

A write is an UPDATE of the rows that are there and an INSERT of those that are not, both of one snapshot. A row
that somebody else inserts in between is in neither: its id is absent from the answer and the caller asks again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant

_SHOWN = """id, status, email, phone, locale, time_zone, attributes, last_seen_at, created_at, updated_at"""

# Rows are locked in the order of their ids before anything is inserted, in that order too, so that two bulks with
# the same users wait for each other in one direction only. The locks return the newest attributes, which the merge
# and its limit are about.
_WRITE = """
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS g (
        id text, given text[], replaces boolean, status text, email text, email_index text, phone text,
        phone_index text, locale text, time_zone text, attributes jsonb, removed text[], last_seen_at timestamptz)
), locked AS MATERIALIZED (
    SELECT u.id, u.attributes FROM app_user u JOIN given g ON g.id = u.id
    WHERE u.tenant_id = %(tenant_id)s
    ORDER BY u.id FOR UPDATE OF u
), change AS MATERIALIZED (
    SELECT g.*, l.id IS NOT NULL AS is_there,
           CASE WHEN NOT 'attributes' = ANY(g.given) THEN l.attributes
                WHEN g.replaces OR g.attributes IS NULL THEN coalesce(g.attributes, '{}')
                ELSE coalesce(l.attributes, '{}') || g.attributes END - g.removed AS merged
    FROM given g LEFT JOIN locked l ON l.id = g.id
), fitting AS MATERIALIZED (
    SELECT * FROM change WHERE octet_length(coalesce(merged, '{}')::text) <= %(attributes_limit)s
), updated AS (
    UPDATE app_user u
    SET status = CASE WHEN 'status' = ANY(c.given) THEN c.status ELSE u.status END,
        email = CASE WHEN 'email' = ANY(c.given) THEN decode(c.email, 'base64') ELSE u.email END,
        email_index = CASE WHEN 'email' = ANY(c.given) THEN decode(c.email_index, 'base64') ELSE u.email_index END,
        phone = CASE WHEN 'phone' = ANY(c.given) THEN decode(c.phone, 'base64') ELSE u.phone END,
        phone_index = CASE WHEN 'phone' = ANY(c.given) THEN decode(c.phone_index, 'base64') ELSE u.phone_index END,
        locale = CASE WHEN 'locale' = ANY(c.given) THEN c.locale ELSE u.locale END,
        time_zone = CASE WHEN 'time_zone' = ANY(c.given) THEN c.time_zone ELSE u.time_zone END,
        attributes = c.merged,
        last_seen_at = CASE WHEN 'last_seen_at' = ANY(c.given) THEN c.last_seen_at ELSE u.last_seen_at END,
        updated_at = now()
    FROM fitting c
    WHERE u.tenant_id = %(tenant_id)s AND u.id = c.id AND c.is_there
    RETURNING u.*
), made AS (
    INSERT INTO app_user (tenant_id, id, status, email, email_index, phone, phone_index, locale, time_zone,
                          attributes, last_seen_at)
    SELECT %(tenant_id)s, id, coalesce(status, 'ACTIVE'), decode(email, 'base64'), decode(email_index, 'base64'),
           decode(phone, 'base64'), decode(phone_index, 'base64'), locale, time_zone, coalesce(merged, '{}'),
           last_seen_at
    FROM fitting WHERE NOT is_there AND %(creates)s
    ORDER BY id
    ON CONFLICT DO NOTHING
    RETURNING *
)
"""

WRITE_ONE = f"""{_WRITE}
SELECT 'updated', {_SHOWN} FROM updated
UNION ALL
SELECT 'created', {_SHOWN} FROM made
UNION ALL
SELECT 'too large', id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM change
WHERE octet_length(coalesce(merged, '{{}}')::text) > %(attributes_limit)s AND (is_there OR %(creates)s)
"""  # noqa: S608  put together of constants

WRITE_MANY = f"""{_WRITE}
SELECT id, 'updated' FROM updated
UNION ALL
SELECT id, 'created' FROM made
UNION ALL
SELECT id, 'too large' FROM change
WHERE octet_length(coalesce(merged, '{{}}')::text) > %(attributes_limit)s
"""  # noqa: S608  put together of constants

FIND = f"SELECT {_SHOWN} FROM app_user WHERE tenant_id = %(tenant_id)s AND id = %(id)s"  # noqa: S608

PAGE = f"""
SELECT {_SHOWN} FROM app_user
WHERE tenant_id = %(tenant_id)s AND id > %(after)s AND (%(status)s::text IS NULL OR status = %(status)s)
ORDER BY id
LIMIT %(limit)s
"""  # noqa: S608

PAGE_BY_STATUS = f"""
SELECT {_SHOWN} FROM app_user
WHERE tenant_id = %(tenant_id)s AND status = %(status)s AND status <> 'ACTIVE' AND id > %(after)s
ORDER BY status, id
LIMIT %(limit)s
"""  # noqa: S608

PAGE_BY_EMAIL = f"""
SELECT {_SHOWN} FROM app_user
WHERE tenant_id = %(tenant_id)s AND email_index = %(index)s AND id > %(after)s
  AND (%(status)s::text IS NULL OR status = %(status)s)
ORDER BY id
LIMIT %(limit)s
"""  # noqa: S608
PAGE_BY_PHONE = PAGE_BY_EMAIL.replace("email_index", "phone_index")


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user as stored; `email` and `phone` are sealed."""

    id: str
    status: str
    email: memoryview | None
    phone: memoryview | None
    locale: str | None
    time_zone: str | None
    attributes: dict[str, Any]
    last_seen_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """Which users a list is about: all of a tenant, those of a status, those with an address."""

    status: str | None = None
    email_index: bytes | None = None
    phone_index: bytes | None = None


def _values(
    tenant_id: str, rows: Sequence[dict[str, Any]], *, creates: bool, attributes_limit: int
) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "rows": orjson.dumps(rows).decode(),
        "creates": creates,
        "attributes_limit": attributes_limit,
    }


def write_one(
    cursor: Cursor, tenant_id: str, row: dict[str, Any], *, creates: bool, attributes_limit: int
) -> tuple[str, UserRow | None] | None:
    """Write one user; return `created` or `updated` with the row, or `too large`; None when it is not there.

    With `creates`, None means that somebody else made it in the same moment: ask again.
    """
    run_as_tenant(cursor, WRITE_ONE, _values(tenant_id, [row], creates=creates, attributes_limit=attributes_limit))
    found = cursor.fetchone()
    if found is None:
        return None
    return found[0], None if found[2] is None else UserRow(*found[1:])


def write_many(
    cursor: Cursor, tenant_id: str, rows: Sequence[dict[str, Any]], *, attributes_limit: int
) -> dict[str, str]:
    """Write users of different ids; return what became of each. An absent one is to be asked for again."""
    run_as_tenant(cursor, WRITE_MANY, _values(tenant_id, rows, creates=True, attributes_limit=attributes_limit))
    return dict(cursor.fetchall())


def find(cursor: Cursor, tenant_id: str, identifier: str) -> UserRow | None:
    """Return a tenant's user, or None."""
    run_as_tenant(cursor, FIND, {"tenant_id": tenant_id, "id": identifier})
    row = cursor.fetchone()
    return None if row is None else UserRow(*row)


def page(cursor: Cursor, tenant_id: str, look: Look, after: str, limit: int) -> list[UserRow]:
    """Return up to `limit` users in the order of their ids, from the one after the id `after`."""
    values: dict[str, Any] = {"tenant_id": tenant_id, "status": look.status, "after": after, "limit": limit}
    statement = PAGE if look.status in {None, "ACTIVE"} else PAGE_BY_STATUS
    if look.email_index is not None:
        statement, values["index"] = PAGE_BY_EMAIL, look.email_index
    elif look.phone_index is not None:
        statement, values["index"] = PAGE_BY_PHONE, look.phone_index
    run_as_tenant(cursor, statement, values)
    return [UserRow(*row) for row in cursor]
