"""What people chose: one row a person, and what the tenant says beside it, read in one look.

A change is written by compare-and-set on the revision that it was made from, so that of two changes at the same
time none is lost. A row may belong to somebody who is not among the stored users.
"""

from datetime import datetime, time
from typing import Any, NamedTuple

import orjson

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant

READ = """
SELECT p.choices, p.quiet_hours, p.revision, p.updated_at, u.time_zone,
       t.time_zone, t.locale, t.quiet_start, t.quiet_end, t.channels, t.quiet,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(c.name, c.is_mandatory, c.channels, c.quiet) ORDER BY c.name),
                        '[]')
        FROM category_policy c WHERE c.tenant_id = %(tenant_id)s)
FROM (SELECT 1) AS one
LEFT JOIN preference_set p ON p.tenant_id = %(tenant_id)s AND p.user_id = %(user_id)s
LEFT JOIN app_user u ON u.tenant_id = %(tenant_id)s AND u.id = %(user_id)s
LEFT JOIN tenant_policy t ON t.tenant_id = %(tenant_id)s
"""

WRITE = """
INSERT INTO preference_set (tenant_id, user_id, choices, quiet_hours)
VALUES (%(tenant_id)s, %(user_id)s, %(choices)s::jsonb, %(quiet_hours)s::jsonb)
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET choices = EXCLUDED.choices, quiet_hours = EXCLUDED.quiet_hours, updated_at = now(),
    revision = preference_set.revision + 1
WHERE preference_set.revision = %(revision)s
RETURNING revision
"""

# The wish of one click: the one channel of the one category, whatever else was chosen.
SWITCH_OFF = """
INSERT INTO preference_set AS p (tenant_id, user_id, choices)
VALUES (%(tenant_id)s, %(user_id)s,
        jsonb_build_object(%(category)s::text, jsonb_build_object(%(channel)s::text, false)))
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET choices = p.choices || jsonb_build_object(
        %(category)s::text,
        coalesce(p.choices -> %(category)s, '{}') || jsonb_build_object(%(channel)s::text, false)),
    updated_at = now(), revision = p.revision + 1
WHERE p.choices -> %(category)s -> %(channel)s IS DISTINCT FROM 'false'
"""


class PreferenceRow(NamedTuple):
    """A person's choices beside what their tenant says. Without a row, 0 and None."""

    choices: dict[str, dict[str, bool]]
    quiet_hours: dict[str, Any] | None
    revision: int
    updated_at: datetime | None
    user_zone: str | None
    tenant_zone: str | None
    tenant_locale: str | None
    quiet_start: time | None
    quiet_end: time | None
    tenant_channels: dict[str, bool] | None
    tenant_quiet: dict[str, bool] | None
    categories: list[tuple[str, bool | None, dict[str, bool], dict[str, bool]]]


def read(cursor: Cursor, tenant_id: str, user_id: str) -> PreferenceRow:
    """Return what a person chose, and what decides where they chose nothing."""
    run_as_tenant(cursor, READ, {"tenant_id": tenant_id, "user_id": user_id})
    (row,) = cursor.fetchall()
    return PreferenceRow(row[0] or {}, row[1], row[2] or 0, *row[3:])


def write(
    cursor: Cursor,
    tenant_id: str,
    user_id: str,
    wishes: tuple[dict[str, dict[str, bool]], dict[str, Any] | None],
    revision: int,
) -> bool:
    """Store a person's choices and quiet hours if they still stand at `revision`; tell whether they did."""
    choices, quiet_hours = wishes
    values = {
        "tenant_id": tenant_id,
        "user_id": user_id,
        "choices": orjson.dumps(choices).decode(),
        "quiet_hours": None if quiet_hours is None else orjson.dumps(quiet_hours).decode(),
        "revision": revision,
    }
    run_as_tenant(cursor, WRITE, values)
    return cursor.fetchone() is not None


def switch_off(cursor: Cursor, tenant_id: str, user_id: str, category: str, channel: str) -> bool:
    """Switch one channel of one category off for a person; tell whether it was not off before."""
    values = {"tenant_id": tenant_id, "user_id": user_id, "category": category, "channel": channel}
    run_as_tenant(cursor, SWITCH_OFF, values)
    return cursor.rowcount > 0
