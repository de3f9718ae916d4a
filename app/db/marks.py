"""What a reader does to notifications: seen, read, archived, deleted and back. Every statement may run twice.

The first instant is kept: an update that would change nothing writes nothing, so a client may repeat what it likes
without growing the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.db import fallback, notifications
from app.db.lists import UNREAD
from app.db.prepared import Prepared, run_prepared
from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.domain.ids import siblings

OWNER = """
SELECT user_id, deleted_at IS NOT NULL FROM notification
WHERE id = %(id)s::uuid AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s::text)
"""

_SHOWN = "id::text, user_id, seen_at, read_at, archived_at"

_MARK = """
WITH changed AS (
    UPDATE notification SET {change}
    WHERE id = %(id)s::uuid AND deleted_at IS NULL AND {needed}
    RETURNING {shown}
)
SELECT {shown}, true FROM changed
UNION ALL
SELECT {shown}, false FROM notification
WHERE id = %(id)s::uuid AND deleted_at IS NULL AND NOT EXISTS (SELECT FROM changed)
"""


def _mark(change: str, needed: str) -> str:
    return _MARK.format(change=change, needed=needed, shown=_SHOWN)


_SEEN = "seen_at = coalesce(seen_at, now())"
MARKS = {
    "seen": _mark(_SEEN, "seen_at IS NULL"),
    "read": _mark(f"read_at = now(), {_SEEN}", "read_at IS NULL"),
    "unread": _mark("read_at = NULL", "read_at IS NOT NULL"),
    "archived": _mark(f"archived_at = now(), {_SEEN}", "archived_at IS NULL"),
    "unarchived": _mark("archived_at = NULL", "archived_at IS NOT NULL"),
}

READ_ALL = Prepared(
    "read_all",
    f"""
WITH changed AS (
    UPDATE notification n SET read_at = now(), seen_at = coalesce(n.seen_at, now())
    WHERE {UNREAD} AND n.inbox_at <= coalesce(%(until)s, now())
      AND (%(category)s IS NULL OR n.category = %(category)s)
    RETURNING 1
)
SELECT count(*), coalesce(%(until)s, now()) FROM changed
""",  # noqa: S608  put together of constants
    tenant_id="text",
    user_id="text",
    until="timestamptz",
    category="text",
)

DELETE = """
UPDATE notification SET deleted_at = now() WHERE id = %(id)s::uuid AND deleted_at IS NULL;
"""

RESTORE = "UPDATE notification SET deleted_at = NULL WHERE id = %(id)s::uuid AND deleted_at IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Marked:
    """A notification's marks after a statement; `is_changed` when it was this one that changed something."""

    id: str
    user_id: str
    seen_at: datetime | None
    read_at: datetime | None
    archived_at: datetime | None
    is_changed: bool


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose notification it is."""

    user_id: str
    is_deleted: bool


def owner(cursor: Cursor, tenant_id: str, identifier: UUID, user_id: str | None) -> Owner | None:
    """Return whose notification it is, or None; with a `user_id`, one of another user is not found."""
    run_as_tenant(cursor, OWNER, {"tenant_id": tenant_id, "id": str(identifier), "user_id": user_id})
    row = cursor.fetchone()
    return None if row is None else Owner(*row)


def mark(cursor: Cursor, name: str, tenant_id: str, identifier: UUID) -> Marked | None:
    """Set or take away the mark `name` of `MARKS`; None for a notification that does not exist or is deleted."""
    run_as_tenant(cursor, MARKS[name], {"tenant_id": tenant_id, "id": str(identifier)})
    row = cursor.fetchone()
    return None if row is None else Marked(*row)


def read_all(
    cursor: Cursor, tenant_id: str, user_id: str, until: datetime | None, category: str | None
) -> tuple[int, datetime]:
    """Mark as read what came into a user's inbox up to `until`, or now; return how many, and the instant used.

    What arrives while the statement runs is not in its snapshot and stays unread.
    """
    values: dict[str, Any] = {
        "tenant_id": tenant_id,
        "user_id": user_id,
        "until": until,
        "category": category,
    }
    run_prepared(cursor, READ_ALL, values)
    (row,) = cursor.fetchall()
    return int(row[0]), row[1]


def delete(cursor: Cursor, identifier: UUID, entry: Mapping[str, Any]) -> int:
    """Hide a notification and call off what of it was not sent; return how many deliveries were called off.

    `entry` is for the audit log and names the tenant, as `app.services.audit.audited` makes it.
    """
    low, high = siblings(identifier)
    values = {**entry, "id": str(identifier), "low": str(low), "high": str(high)}
    values |= {"user_id": None, "with_deleted": True}
    run_as_tenant(cursor, fallback.DROP + DELETE + notifications.CANCEL, values)
    return sum(1 for row in cursor if row[3])


def restore(cursor: Cursor, tenant_id: str, identifier: UUID) -> bool:
    """Show a deleted notification again; tell whether it was deleted."""
    run_as_tenant(cursor, RESTORE, {"tenant_id": tenant_id, "id": str(identifier)})
    return bool(cursor.rowcount)
