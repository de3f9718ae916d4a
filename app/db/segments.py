"""Segments: which users a filter means, read in the order of their ids.

A filter becomes conditions over `app_user` with parameters; nothing of it becomes SQL text. Reading goes by the
primary key from user to user and looks at a bounded number of them a step, so a filter that hardly anybody passes
takes many short steps and not one long one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from app.db.requests import Cursor
from app.domain.kinds import Channel

LOOKED_AT = 50_000
"""Users that one step looks at, at most."""

_HAS_ADDRESS = {
    Channel.EMAIL: "u.email IS NOT NULL",
    Channel.SMS: "u.phone IS NOT NULL",
    Channel.PUSH: "EXISTS (SELECT FROM device d WHERE d.tenant_id = u.tenant_id AND d.user_id = u.id"
    " AND NOT d.is_muted)",
    Channel.IN_APP: "true",
}

# Whoever joins while a batch runs is not of it, whatever the id: the bounds are those of its start.
_RANGE = """u.tenant_id = %(tenant_id)s AND u.id > %(after)s AND u.id <= %(last)s
  AND u.created_at <= %(until)s"""

_MEMBERS = f"""
SELECT u.id FROM (
    SELECT * FROM app_user u WHERE {_RANGE} ORDER BY u.id LIMIT %(looked_at)s
) AS u
WHERE {{conditions}}
ORDER BY u.id LIMIT %(limit)s
"""  # noqa: S608  only constants of this module are put in

_STEP_END = f"SELECT u.id FROM app_user u WHERE {_RANGE} ORDER BY u.id OFFSET %(looked_at)s - 1 LIMIT 1"  # noqa: S608

_MEASURE = """
SELECT count(*), max(u.id) FROM app_user u
WHERE u.tenant_id = %(tenant_id)s AND u.created_at <= %(until)s AND {conditions}
"""


@dataclass(frozen=True, slots=True)
class Span:
    """Whose users, which of them, and where to go on: beyond `after`, up to `last`, made not after `until`."""

    tenant_id: str
    segment: Mapping[str, Any]
    until: datetime
    after: str = ""
    last: str = ""


@dataclass(frozen=True, slots=True)
class Members:
    """Some users of a segment, and from where to go on; None when there are no more."""

    ids: Sequence[str]
    after: str | None


def measure(cursor: Cursor, span: Span) -> tuple[int, str]:
    """Return how many users a segment has and the greatest id of them, empty when there is none.

    It looks at all users of the tenant, so it is for the background.
    """
    conditions, values = _conditions(span.segment)
    cursor.execute(_MEASURE.format(conditions=conditions), _values(span) | values)
    count, last = cursor.fetchone() or (0, None)
    return int(count), last or ""


def members(cursor: Cursor, span: Span, limit: int) -> Members:
    """Return up to `limit` users of a segment in the order of their ids."""
    conditions, values = _conditions(span.segment)
    given = _values(span) | values | {"limit": limit, "looked_at": max(LOOKED_AT, limit)}
    cursor.execute(_MEMBERS.format(conditions=conditions), given)
    ids = [user_id for (user_id,) in cursor]
    if len(ids) == limit:
        return Members(ids, ids[-1])
    cursor.execute(_STEP_END, given)
    end = cursor.fetchone()
    return Members(ids, None if end is None else end[0])


def _values(span: Span) -> dict[str, Any]:
    return {"tenant_id": span.tenant_id, "after": span.after, "last": span.last, "until": span.until}


def _conditions(segment: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the conditions of a stored segment over the alias `u`, and their parameters."""
    parts = ["u.status = 'ACTIVE'"]
    values: dict[str, Any] = {}
    if locales := segment.get("locales"):
        parts.append(
            "(lower(u.locale) = ANY(%(locales)s) OR split_part(lower(u.locale), '-', 1) = ANY(%(locales)s))"
        )
        values["locales"] = [locale.lower() for locale in locales]
    for name, (side, comparison) in {"seen_after": ("s", ">="), "seen_before": ("b", "<")}.items():
        if (moment := segment.get(name)) is not None:
            parts.append(f"u.last_seen_at {comparison} %(seen_{side})s::timestamptz")
            values[f"seen_{side}"] = moment
    parts += [_HAS_ADDRESS[Channel(channel)] for channel in segment.get("has_address") or ()]
    for index, (name, condition) in enumerate((segment.get("attributes") or {}).items()):
        values[f"name_{index}"] = name
        parts += _attribute(index, condition, values)
    return " AND ".join(parts), values


def _attribute(index: int, condition: Mapping[str, Any], values: dict[str, Any]) -> list[str]:
    parts = []
    place = f"u.attributes -> %(name_{index})s"
    if "equals" in condition:
        parts.append(f"{place} = %(equals_{index})s::jsonb")
        values[f"equals_{index}"] = orjson.dumps(condition["equals"]).decode()
    if "in" in condition:
        parts.append(f"{place} = ANY(%(in_{index})s::jsonb[])")
        values[f"in_{index}"] = [orjson.dumps(each).decode() for each in condition["in"]]
    if "exists" in condition:
        negation = "" if condition["exists"] else "NOT "
        parts.append(f"{negation}u.attributes ? %(name_{index})s")
    return parts
