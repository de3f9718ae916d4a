"""What an accept reads before it decides: the key's earlier use, and what is known of the user. One statement.

Addresses stay where they are: a decision needs to know whether there are any, and the worker joins them when it
sends. So an address that changes meanwhile is used as it is then, and one that is erased is used no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.db.notifications import Kept
from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.domain.frequency import FrequencyCap
from app.domain.kinds import Channel
from app.domain.users import Device, KnownUser, UserStatus

_USER = """u.status, u.email IS NOT NULL, u.phone IS NOT NULL, u.locale, u.time_zone,
       (SELECT json_agg(json_build_array(d.id, d.time_zone, d.is_muted) ORDER BY d.registered_at, d.id)
        FROM device d WHERE d.tenant_id = u.tenant_id AND d.user_id = u.id)"""

READ = f"""
SELECT k.fingerprint, k.answer, c.most, c.window_seconds, c.channels, {_USER}
FROM (SELECT %(tenant_id)s::text AS tenant_id) AS given
LEFT JOIN idempotency_key k
    ON k.tenant_id = given.tenant_id AND k.route = %(route)s AND k.key = %(key)s
LEFT JOIN app_user u ON u.tenant_id = given.tenant_id AND u.id = %(user_id)s
LEFT JOIN frequency_cap c ON c.tenant_id = given.tenant_id AND c.category = %(category)s
"""  # noqa: S608  only constants of this module are put in

USERS = f"""
SELECT u.id, {_USER}
FROM app_user u WHERE u.tenant_id = %(tenant_id)s AND u.id = ANY(%(user_ids)s)
"""  # noqa: S608  only constants of this module are put in


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request names that something may be known of."""

    user_id: str
    category: str
    route: str
    key: str


@dataclass(frozen=True, slots=True)
class Known:
    """What was found: what the idempotency key stands for already, the user, and the cap of the category."""

    kept: Kept | None
    user: KnownUser | None
    cap: FrequencyCap | None


def read(cursor: Cursor, tenant_id: str, asked: Asked) -> Known:
    """Return what is known of one request."""
    values = {
        "tenant_id": tenant_id,
        "user_id": asked.user_id,
        "category": asked.category,
        "route": asked.route,
        "key": asked.key,
    }
    run_as_tenant(cursor, READ, values)
    fingerprint, answer, most, seconds, channels, *user = cursor.fetchone() or (None,) * 6
    return Known(
        None if fingerprint is None else Kept(bytes(fingerprint), answer),
        None if user[0] is None else _user(user),
        None if most is None else FrequencyCap(most, seconds, frozenset(map(Channel, channels))),
    )


def users(cursor: Cursor, tenant_id: str, user_ids: Sequence[str]) -> dict[str, KnownUser]:
    """Return those of `user_ids` that are known."""
    run_as_tenant(cursor, USERS, {"tenant_id": tenant_id, "user_ids": list(user_ids)})
    return {user_id: _user(values) for user_id, *values in cursor}


def _user(values: Sequence[Any]) -> KnownUser:
    status, has_email, has_phone, locale, time_zone, devices = values
    devices = devices or []
    return KnownUser(
        UserStatus(status),
        has_email,
        has_phone,
        locale,
        time_zone,
        tuple(Device(id_, zone) for id_, zone, is_muted in devices if not is_muted),
        any(is_muted for _, _, is_muted in devices),
    )
