"""Devices: push tokens of users. A token is in one place of a tenant: whoever registered it last has it.

Each function is one message to the server, held to its tenant by `app.db.tenancy`. Tokens come and go sealed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant

_SHOWN = "id::text, platform, token, time_zone, is_muted, registered_at, last_seen_at"

# A token that another user of the tenant had is one phone in other hands: it becomes a new device of the new user,
# under a new id, so that nothing that waits for the old one finds it. Of the same user it is the same device,
# which keeps its id, its seal and what was chosen for it. The user's row is locked, so the count is nearly exact:
# two registrations at once may leave one device too many, which the next one takes.
REGISTER = f"""
WITH owner AS MATERIALIZED (
    SELECT id FROM app_user WHERE tenant_id = %(tenant_id)s AND id = %(user_id)s FOR NO KEY UPDATE
), surplus AS (
    DELETE FROM device d
    USING (SELECT id FROM device
           WHERE tenant_id = %(tenant_id)s AND user_id = %(user_id)s AND token_index <> %(token_index)s
             AND EXISTS (SELECT FROM owner)
           ORDER BY coalesce(last_seen_at, registered_at) DESC, id DESC OFFSET %(others)s) AS old
    WHERE d.tenant_id = %(tenant_id)s AND d.user_id = %(user_id)s AND d.id = old.id
), stored AS (
    INSERT INTO device AS d (tenant_id, user_id, id, platform, token, token_index, time_zone, is_muted,
                             last_seen_at)
    SELECT %(tenant_id)s, owner.id, %(id)s::uuid, %(platform)s, %(token)s, %(token_index)s, %(time_zone)s,
           coalesce(%(is_muted)s, false), now()
    FROM owner
    ON CONFLICT (tenant_id, token_index) DO UPDATE
    SET user_id = excluded.user_id,
        id = CASE WHEN d.user_id = excluded.user_id THEN d.id ELSE excluded.id END,
        token = CASE WHEN d.user_id = excluded.user_id THEN d.token ELSE excluded.token END,
        platform = excluded.platform,
        time_zone = CASE WHEN d.user_id = excluded.user_id AND excluded.time_zone IS NULL THEN d.time_zone
                         ELSE excluded.time_zone END,
        is_muted = CASE WHEN d.user_id = excluded.user_id AND %(is_muted)s::boolean IS NULL THEN d.is_muted
                        ELSE excluded.is_muted END,
        registered_at = now(),
        last_seen_at = now()
    RETURNING *
)
SELECT {_SHOWN} FROM stored
"""  # noqa: S608  put together of constants

PAGE = f"""
SELECT {_SHOWN} FROM (
    SELECT d.* FROM app_user u LEFT JOIN device d ON d.tenant_id = u.tenant_id AND d.user_id = u.id
    WHERE u.tenant_id = %(tenant_id)s AND u.id = %(user_id)s) AS d
ORDER BY coalesce(last_seen_at, registered_at) DESC, id DESC
"""  # noqa: S608

CHANGE = f"""
UPDATE device
SET is_muted = coalesce(%(is_muted)s, is_muted),
    time_zone = CASE WHEN %(sets_zone)s THEN %(time_zone)s ELSE time_zone END
WHERE tenant_id = %(tenant_id)s AND user_id = %(user_id)s AND id = %(id)s::uuid
RETURNING {_SHOWN}
"""  # noqa: S608

REMOVE = """
DELETE FROM device WHERE tenant_id = %(tenant_id)s AND user_id = %(user_id)s AND id = %(id)s::uuid RETURNING id
"""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device as stored; `token` is sealed."""

    id: str
    platform: str
    token: memoryview
    time_zone: str | None
    is_muted: bool
    registered_at: datetime
    last_seen_at: datetime | None


def register(cursor: Cursor, values: Mapping[str, Any]) -> DeviceRow | None:
    """Store a token, `values` being the parameters of `REGISTER`; None when there is no such user."""
    run_as_tenant(cursor, REGISTER, values)
    row = cursor.fetchone()
    return None if row is None else DeviceRow(*row)


def page(cursor: Cursor, tenant_id: str, user_id: str) -> list[DeviceRow] | None:
    """Return a user's devices, the one seen last first; None when there is no such user."""
    run_as_tenant(cursor, PAGE, {"tenant_id": tenant_id, "user_id": user_id})
    rows = cursor.fetchall()
    return [DeviceRow(*row) for row in rows if row[0] is not None] if rows else None


def change(cursor: Cursor, values: Mapping[str, Any]) -> DeviceRow | None:
    """Mute a device or move it to another zone, `values` being the parameters of `CHANGE`; None when not there."""
    run_as_tenant(cursor, CHANGE, values)
    row = cursor.fetchone()
    return None if row is None else DeviceRow(*row)


def remove(cursor: Cursor, tenant_id: str, user_id: str, identifier: str) -> bool:
    """Forget a device; False when it was not there."""
    run_as_tenant(cursor, REMOVE, {"tenant_id": tenant_id, "user_id": user_id, "id": identifier})
    return cursor.fetchone() is not None
