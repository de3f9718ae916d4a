"""Frequency caps: the rules of a tenant, and a small row for each notification that counts under one.

Exact under any race: whoever wants to store takes the turn of its tenant, user and category, then counts, stores
and leaves its row, all in one transaction that the caller opens. What it counts was committed before the turn was
its own. A row that the window has left behind is deleted by the next one of its person, or by the pruning.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.db.turns import TAKE_TURNS, in_order, turn
from app.domain.frequency import WINDOW_LIMIT_SECONDS, FrequencyCap
from app.domain.kinds import Channel

CAPS = """
SELECT category, most, window_seconds, channels FROM frequency_cap
WHERE tenant_id = %(tenant_id)s AND (%(categories)s::text[] IS NULL OR category = ANY(%(categories)s::text[]))
ORDER BY category
"""

# A tenant's rules fit on one page, so that an accept never has to choose among thousands.
PUT = """
INSERT INTO frequency_cap (tenant_id, category, most, window_seconds, channels)
SELECT %(tenant_id)s, %(category)s, %(most)s, %(window_seconds)s, %(channels)s::text[]
WHERE (SELECT count(*) FROM frequency_cap WHERE tenant_id = %(tenant_id)s AND category <> %(category)s) < %(rules)s
ON CONFLICT (tenant_id, category) DO UPDATE
SET most = EXCLUDED.most, window_seconds = EXCLUDED.window_seconds, channels = EXCLUDED.channels,
    updated_at = now()
RETURNING category
"""

DELETE = """
DELETE FROM frequency_cap WHERE tenant_id = %(tenant_id)s AND category = %(category)s RETURNING category
"""

COUNT = """
SELECT u.user_id, u.category, count(h.notification_id)
FROM unnest(%(users)s::text[], %(categories)s::text[], %(windows)s::integer[]) AS u (user_id, category, seconds)
LEFT JOIN frequency_hit h ON h.tenant_id = %(tenant_id)s AND h.user_id = u.user_id AND h.category = u.category
                         AND h.at > now() - make_interval(secs => u.seconds)
GROUP BY 1, 2
"""

NOTE = """
WITH hit AS (
    SELECT * FROM unnest(%(users)s::text[], %(categories)s::text[], %(windows)s::integer[], %(ids)s::uuid[])
        AS u (user_id, category, seconds, id)
), gone AS (
    DELETE FROM frequency_hit h USING hit
    WHERE h.tenant_id = %(tenant_id)s AND h.user_id = hit.user_id AND h.category = hit.category
      AND h.at <= now() - make_interval(secs => hit.seconds)
)
INSERT INTO frequency_hit (tenant_id, user_id, category, notification_id)
SELECT %(tenant_id)s, user_id, category, id FROM hit
"""

PRUNE = """
DELETE FROM frequency_hit WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM frequency_hit WHERE at < now() - make_interval(secs => %(seconds)s)
    ORDER BY at LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """A person and category under a rule: what is counted together. `seconds` is the rule's window."""

    user_id: str
    category: str
    seconds: int


def caps(cursor: Cursor, tenant_id: str, categories: Collection[str] | None = None) -> dict[str, FrequencyCap]:
    """Return the rules of a tenant by category, all or those of `categories`."""
    names = None if categories is None else sorted(categories)
    run_as_tenant(cursor, CAPS, {"tenant_id": tenant_id, "categories": names})
    return {
        category: FrequencyCap(most, seconds, frozenset(map(Channel, channels)))
        for category, most, seconds, channels in cursor
    }


def put(cursor: Cursor, tenant_id: str, category: str, cap: FrequencyCap, rules: int) -> bool:
    """Set the rule of a category; False when the tenant has `rules` others already."""
    values = {
        "tenant_id": tenant_id,
        "category": category,
        "most": cap.most,
        "window_seconds": cap.window_seconds,
        "channels": sorted(channel.value for channel in cap.channels),
        "rules": rules,
    }
    run_as_tenant(cursor, PUT, values)
    return cursor.fetchone() is not None


def delete(cursor: Cursor, tenant_id: str, category: str) -> bool:
    """Delete the rule of a category; tell whether there was one."""
    run_as_tenant(cursor, DELETE, {"tenant_id": tenant_id, "category": category})
    return cursor.fetchone() is not None


def take_turns_and_count(cursor: Cursor, tenant_id: str, wanted: Iterable[Counted]) -> dict[tuple[str, str], int]:
    """Take the turns of all `wanted`, then return how many hits each has in its window, by (user, category).

    Must run in a transaction of the caller's, which holds the turns to its end.
    """
    counted = list(wanted)
    turns = in_order(turn("frequency", tenant_id, each.user_id, each.category) for each in counted)
    values = {**_arrays(tenant_id, counted), "turns": turns}
    run_as_tenant(cursor, f"{TAKE_TURNS}{COUNT}", values)
    return {(user_id, category): number for user_id, category, number in cursor}


def count(cursor: Cursor, tenant_id: str, wanted: Iterable[Counted]) -> dict[tuple[str, str], int]:
    """Return how many hits each has in its window now, by (user, category), and promise nothing."""
    run_as_tenant(cursor, COUNT, _arrays(tenant_id, list(wanted)))
    return {(user_id, category): number for user_id, category, number in cursor}


def note(cursor: Cursor, tenant_id: str, hits: Collection[tuple[Counted, str]]) -> None:
    """Leave a row for each notification, by id, that counts; needs the turns."""
    if hits:
        values = _arrays(tenant_id, [counted for counted, _ in hits])
        run_as_tenant(cursor, NOTE, {**values, "ids": [identifier for _, identifier in hits]})


def prune(connection: Connection, batch: int) -> int:
    """Delete up to `batch` rows that are older than any window; return how many."""
    return connection.exec_driver_sql(PRUNE, {"seconds": WINDOW_LIMIT_SECONDS, "batch": batch}).rowcount


def _arrays(tenant_id: str, counted: Collection[Counted]) -> dict[str, object]:
    return {
        "tenant_id": tenant_id,
        "users": [each.user_id for each in counted],
        "categories": [each.category for each in counted],
        "windows": [each.seconds for each in counted],
    }
