"""What an accept reads before it decides: the key's earlier use, the user, the template, and what was said.

Addresses stay where they are: a decision needs to know whether there are any and whether they are suppressed, and
the worker joins them when it sends. So an address that changes meanwhile is used as it is then, and one
that is erased is used no more.

One statement for one request, whose every look-up is by a primary key or a device's user; two for many.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.db.notifications import Kept
from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.domain.circumstances import Circumstances, category_from, tenant_from
from app.domain.frequency import FrequencyCap
from app.domain.kinds import Channel
from app.domain.preferences import CategoryPolicy, TenantPolicy, wish_of
from app.domain.users import Device, KnownUser, UserStatus

Indexes = Mapping[str, bytes]
"""The blind indexes of explicit recipients, by channel."""


def _is_suppressed(channel: str, index: str) -> str:
    same = f"s.tenant_id = u.tenant_id AND s.channel = '{channel}' AND s.address_index = {index}"
    return f"({index} IS NOT NULL AND EXISTS (SELECT FROM suppression s WHERE {same}))"


_USER = f"""
       u.status, u.email IS NOT NULL, u.phone IS NOT NULL, u.locale, u.time_zone,
       {_is_suppressed("EMAIL", "u.email_index")}, {_is_suppressed("SMS", "u.phone_index")},
       (SELECT json_agg(json_build_array(d.id, d.time_zone, d.is_muted, {_is_suppressed("PUSH", "d.token_index")})
                        ORDER BY d.registered_at, d.id)
        FROM device d WHERE d.tenant_id = u.tenant_id AND d.user_id = u.id)"""  # noqa: S608  constants
_USER_COLUMNS = 8
_TENANT = "t.time_zone, t.locale, t.quiet_start, t.quiet_end, t.channels, t.quiet"
# The LIMIT keeps each look-up one of the whole key: as a plain join, statistics of a young table make it a scan
# of all that the tenant suppresses.
_ON_THE_LIST = """JOIN LATERAL (SELECT FROM suppression s WHERE s.tenant_id = given.tenant_id
                           AND s.channel = w.channel AND s.address_index = w.address_index
                           LIMIT 1) AS hit ON true"""
_HITS = f"""(SELECT array_agg(w.channel)
        FROM unnest(%(hit_channels)s::text[], %(hit_indexes)s::bytea[]) AS w (channel, address_index)
        {_ON_THE_LIST})"""  # noqa: S608  constants

READ = f"""
SELECT k.fingerprint, k.answer, m.current_version, {_USER},
       p.choices, p.quiet_hours, {_TENANT}, c.is_mandatory, c.channels, c.quiet, {_HITS},
       f.most, f.window_seconds, f.channels
FROM (SELECT %(tenant_id)s::text AS tenant_id) AS given
LEFT JOIN idempotency_key k
    ON k.tenant_id = given.tenant_id AND k.route = %(route)s AND k.key = %(key)s
LEFT JOIN template m
    ON m.tenant_id = given.tenant_id AND m.name = %(template)s AND m.archived_at IS NULL
LEFT JOIN app_user u ON u.tenant_id = given.tenant_id AND u.id = %(user_id)s
LEFT JOIN preference_set p ON p.tenant_id = given.tenant_id AND p.user_id = %(user_id)s
LEFT JOIN tenant_policy t ON t.tenant_id = given.tenant_id
LEFT JOIN category_policy c ON c.tenant_id = given.tenant_id AND c.name = %(category)s
LEFT JOIN frequency_cap f ON f.tenant_id = given.tenant_id AND f.category = %(category)s
"""  # noqa: S608  only constants of this module are put in

PEOPLE = f"""
SELECT w.id, {_USER}, p.choices, p.quiet_hours
FROM unnest(%(user_ids)s::text[]) AS w (id)
LEFT JOIN app_user u ON u.tenant_id = %(tenant_id)s AND u.id = w.id
LEFT JOIN preference_set p ON p.tenant_id = %(tenant_id)s AND p.user_id = w.id
WHERE u.id IS NOT NULL OR p.user_id IS NOT NULL
"""  # noqa: S608  only constants of this module are put in

POLICIES = f"""
SELECT {_TENANT},
       (SELECT json_agg(json_build_array(c.name, c.is_mandatory, c.channels, c.quiet))
        FROM category_policy c WHERE c.tenant_id = given.tenant_id AND c.name = ANY(%(categories)s::text[])),
       (SELECT json_agg(json_build_array(f.category, f.most, f.window_seconds, f.channels))
        FROM frequency_cap f WHERE f.tenant_id = given.tenant_id AND f.category = ANY(%(categories)s::text[])),
       (SELECT array_agg(w.position)
        FROM unnest(%(positions)s::integer[], %(hit_channels)s::text[], %(hit_indexes)s::bytea[])
             AS w (position, channel, address_index)
        {_ON_THE_LIST})
FROM (SELECT %(tenant_id)s::text AS tenant_id) AS given
LEFT JOIN tenant_policy t ON t.tenant_id = given.tenant_id
"""  # noqa: S608  only constants of this module are put in


@dataclass(frozen=True, slots=True)
class Known:
    """What was found: what the idempotency key stands for already, the user if there is one, and what was said.

    `template_version` is the current version of the template that was named, None when it is not in use; `cap` the
    frequency cap of the category.
    """

    kept: Kept | None
    user: KnownUser | None
    around: Circumstances
    template_version: int | None = None
    cap: FrequencyCap | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Of one message: for whom, in which category, to which explicit recipients, by which template."""

    user_id: str
    category: str
    indexes: Indexes
    template: str | None = None


def read(cursor: Cursor, tenant_id: str, asked: Asked, route: str = "", key: str = "") -> Known:
    """Return what is known of one request; without a key, nothing was kept under it."""
    values = {
        "tenant_id": tenant_id,
        "user_id": asked.user_id,
        "category": asked.category,
        "route": route,
        "key": key,
        "template": asked.template,
        "hit_channels": list(asked.indexes),
        "hit_indexes": list(asked.indexes.values()),
    }
    run_as_tenant(cursor, READ, values)
    (row,) = cursor.fetchall()
    fingerprint, answer, version, *rest = row
    user, (choices, wish, *said) = rest[:_USER_COLUMNS], rest[_USER_COLUMNS:]
    around = Circumstances(
        category_from(asked.category, *said[6:9]),
        tenant_from(*said[:6]),
        choices or {},
        wish_of(wish),
        frozenset(said[9] or ()),
    )
    kept = None if fingerprint is None else Kept(bytes(fingerprint), answer)
    return Known(kept, None if user[0] is None else _user(user), around, version, _cap(*said[10:13]))


def read_many(cursor: Cursor, tenant_id: str, asked: Sequence[Asked]) -> list[Known]:
    """Return what is known of each of many messages, in their order."""
    run_as_tenant(cursor, PEOPLE, {"tenant_id": tenant_id, "user_ids": list({one.user_id for one in asked})})
    people = {row[0]: row[1:] for row in cursor}
    tenant, categories, caps, hits = _policies(cursor, tenant_id, asked)
    found = []
    for number, one in enumerate(asked):
        *user, choices, wish = people.get(one.user_id, (None,) * (_USER_COLUMNS + 2))
        around = Circumstances(
            categories.get(one.category) or category_from(one.category, None, None, None),
            tenant,
            choices or {},
            wish_of(wish),
            hits.get(number, frozenset()),
        )
        known = None if user[0] is None else _user(user)
        found.append(Known(None, known, around, cap=caps.get(one.category)))
    return found


def _policies(
    cursor: Cursor, tenant_id: str, asked: Sequence[Asked]
) -> tuple[TenantPolicy, dict[str, CategoryPolicy], dict[str, FrequencyCap | None], dict[int, frozenset[str]]]:
    places = [(number, channel) for number, one in enumerate(asked) for channel in one.indexes]
    values = {
        "tenant_id": tenant_id,
        "categories": list({one.category for one in asked}),
        "positions": list(range(len(places))),
        "hit_channels": [channel for _, channel in places],
        "hit_indexes": [asked[number].indexes[channel] for number, channel in places],
    }
    run_as_tenant(cursor, POLICIES, values)
    ((*tenant, declared, capped, hits),) = cursor.fetchall()
    found: dict[int, set[str]] = {}
    for place in hits or ():
        number, channel = places[place]
        found.setdefault(number, set()).add(channel)
    categories = {row[0]: category_from(*row) for row in declared or ()}
    caps = {category: _cap(*rule) for category, *rule in capped or ()}
    hit = {number: frozenset(names) for number, names in found.items()}
    return tenant_from(*tenant), categories, caps, hit


def _cap(most: int | None, seconds: int | None, channels: Sequence[str] | None) -> FrequencyCap | None:
    """Return a category's cap from its stored columns, which are all None where there is none."""
    if most is None or seconds is None or channels is None:
        return None
    return FrequencyCap(most, seconds, frozenset(map(Channel, channels)))


def _user(values: Sequence[Any]) -> KnownUser:
    status, has_email, has_phone, locale, time_zone, mail_is_suppressed, phone_is_suppressed, devices = values
    devices = devices or []
    known = KnownUser(
        UserStatus(status),
        has_email,
        has_phone,
        locale,
        time_zone,
        tuple(Device(id_, zone, suppressed) for id_, zone, is_muted, suppressed in devices if not is_muted),
        any(is_muted for _, _, is_muted, _ in devices),
    )
    if not mail_is_suppressed and not phone_is_suppressed:
        return known
    names = [name for name, is_on in (("EMAIL", mail_is_suppressed), ("SMS", phone_is_suppressed)) if is_on]
    return replace(known, suppressed=frozenset(names))
