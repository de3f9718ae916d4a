"""Templates and their versions: stored, chosen, listed, archived, and looked up for a rendering.

Every statement may be sent twice with the same values, since a request is repeated when its connection turns out
to be dead: what the first sending stored is what the second finds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Connection

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant

_TEMPLATE = """t.name, t.category, t.current_version, t.latest_version, t.created_at, t.updated_at,
       t.archived_at"""
_VERSION = "v.number, v.created_by, v.created_at, v.default_locale, v.variables, v.bodies"

# The row of the template is locked by being written, and holds the digest of the current version: of two that
# store the same content at the same time one makes a version, of two that differ each makes its own.
STORE = f"""
WITH kept AS (
    INSERT INTO template AS t (tenant_id, name, category, current_version, latest_version, digest)
    VALUES (%(tenant_id)s, %(name)s, %(category)s, 1, 1, %(digest)s)
    ON CONFLICT (tenant_id, name) DO UPDATE
    SET category = excluded.category,
        current_version = CASE WHEN t.digest = excluded.digest THEN t.current_version
                               ELSE t.latest_version + 1 END,
        latest_version = t.latest_version + (t.digest <> excluded.digest)::integer,
        digest = excluded.digest,
        archived_at = NULL,
        updated_at = CASE WHEN t.digest = excluded.digest AND t.archived_at IS NULL
                               AND t.category IS NOT DISTINCT FROM excluded.category THEN t.updated_at
                          ELSE now() END
    RETURNING t.*
), made AS (
    INSERT INTO template_version (tenant_id, name, number, digest, default_locale, variables, bodies, created_by)
    SELECT tenant_id, name, current_version, digest, %(default_locale)s, %(variables)s::jsonb, %(bodies)s::jsonb,
           %(created_by)s
    FROM kept
    ON CONFLICT (tenant_id, name, number) DO NOTHING
    RETURNING *
)
SELECT {_TEMPLATE}, {_VERSION}, true FROM kept t, made v
UNION ALL
SELECT {_TEMPLATE}, {_VERSION}, false
FROM kept t
JOIN template_version v ON v.tenant_id = t.tenant_id AND v.name = t.name AND v.number = t.current_version
WHERE NOT EXISTS (SELECT FROM made)
"""  # noqa: S608  put together of constants

FIND = f"""
SELECT {_TEMPLATE}, {_VERSION}, false
FROM template t
JOIN template_version v ON v.tenant_id = t.tenant_id AND v.name = t.name
                       AND v.number = coalesce(%(number)s, t.current_version)
WHERE t.tenant_id = %(tenant_id)s AND t.name = %(name)s
"""  # noqa: S608

PAGE = f"""
SELECT {_TEMPLATE}, v.default_locale, ARRAY(SELECT jsonb_object_keys(v.bodies) ORDER BY 1)
FROM template t
JOIN template_version v ON v.tenant_id = t.tenant_id AND v.name = t.name AND v.number = t.current_version
WHERE t.tenant_id = %(tenant_id)s AND t.name > %(after)s AND (t.archived_at IS NOT NULL) = %(archived)s
ORDER BY t.name
LIMIT %(limit)s
"""  # noqa: S608

VERSIONS = f"""
SELECT {_VERSION} FROM template_version v
WHERE v.tenant_id = %(tenant_id)s AND v.name = %(name)s AND v.number < %(before)s
ORDER BY v.number DESC
LIMIT %(limit)s
"""  # noqa: S608

CHOOSE = f"""
WITH chosen AS (
    UPDATE template t
    SET current_version = v.number, digest = v.digest, archived_at = NULL,
        updated_at = CASE WHEN t.current_version = v.number AND t.archived_at IS NULL THEN t.updated_at
                          ELSE now() END
    FROM template_version v
    WHERE t.tenant_id = %(tenant_id)s AND t.name = %(name)s
      AND v.tenant_id = t.tenant_id AND v.name = t.name AND v.number = %(number)s
    RETURNING t.*
)
SELECT {_TEMPLATE}, {_VERSION}, false
FROM chosen t
JOIN template_version v ON v.tenant_id = t.tenant_id AND v.name = t.name AND v.number = t.current_version
"""  # noqa: S608

ARCHIVE = """
UPDATE template SET archived_at = coalesce(archived_at, now()), updated_at = now()
WHERE tenant_id = %(tenant_id)s AND name = %(name)s
RETURNING name
"""

CURRENT = """
SELECT name, current_version FROM template
WHERE tenant_id = %(tenant_id)s AND name = ANY(%(names)s) AND archived_at IS NULL
"""

# For whoever renders: the worker, which is no tenant's, asks for what several of them need in one go.
LOAD = """
SELECT v.tenant_id, v.name, v.number, v.default_locale, v.variables, v.bodies
FROM template_version v
JOIN unnest(%(tenants)s::text[], %(names)s::text[], %(numbers)s::integer[]) AS w (tenant_id, name, number)
  ON w.tenant_id = v.tenant_id AND w.name = v.name AND w.number = v.number
"""


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version as it is stored; `variables` and `bodies` as the API shows them."""

    number: int
    created_by: str
    created_at: datetime
    default_locale: str
    variables: list[dict[str, Any]]
    bodies: dict[str, dict[str, dict[str, str]]]


@dataclass(frozen=True, slots=True)
class TemplateRow:
    """A template, without what its versions say."""

    name: str
    category: str | None
    current_version: int
    latest_version: int
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


@dataclass(frozen=True, slots=True)
class Held:
    """A template with one of its versions; `is_new` when that was made just now."""

    template: TemplateRow
    version: VersionRow
    is_new: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """A template in a list, with the languages of its current version."""

    template: TemplateRow
    default_locale: str
    locales: list[str]


_COLUMNS = 7


def _held(row: tuple[Any, ...]) -> Held:
    return Held(TemplateRow(*row[:_COLUMNS]), VersionRow(*row[_COLUMNS:-1]), row[-1])


def _one(cursor: Cursor, statement: str, values: Mapping[str, Any]) -> Held | None:
    run_as_tenant(cursor, statement, values)
    row = cursor.fetchone()
    return None if row is None else _held(row)


def store(cursor: Cursor, values: Mapping[str, Any]) -> Held:
    """Store a version as the current one, unless the current one says the same; `values` are those of `STORE`."""
    stored = _one(cursor, STORE, values)
    if stored is None:
        # Somebody else stored the same just before: newer than what this statement could see.
        stored = find(cursor, values["tenant_id"], values["name"])
    if stored is None:
        raise RuntimeError("a template was stored and is not there")
    return stored


def find(cursor: Cursor, tenant_id: str, name: str, number: int | None = None) -> Held | None:
    """Return a template with its current version or the one of that number, or None."""
    return _one(cursor, FIND, {"tenant_id": tenant_id, "name": name, "number": number})


def page(cursor: Cursor, tenant_id: str, after: str, limit: int, *, archived: bool) -> list[Listed]:
    """Return up to `limit` templates by name, behind the name `after`: those in use, or the archived ones."""
    values = {"tenant_id": tenant_id, "after": after, "limit": limit, "archived": archived}
    run_as_tenant(cursor, PAGE, values)
    return [Listed(TemplateRow(*row[:_COLUMNS]), *row[_COLUMNS:]) for row in cursor]


def versions(cursor: Cursor, tenant_id: str, name: str, before: int, limit: int) -> list[VersionRow]:
    """Return up to `limit` versions, newest first, with numbers below `before`."""
    run_as_tenant(cursor, VERSIONS, {"tenant_id": tenant_id, "name": name, "before": before, "limit": limit})
    return [VersionRow(*row) for row in cursor]


def choose(cursor: Cursor, tenant_id: str, name: str, number: int) -> Held | None:
    """Make a version the current one; None when there is no such version."""
    return _one(cursor, CHOOSE, {"tenant_id": tenant_id, "name": name, "number": number})


def archive(cursor: Cursor, tenant_id: str, name: str) -> bool:
    """Take a template out of use; False when there is none."""
    run_as_tenant(cursor, ARCHIVE, {"tenant_id": tenant_id, "name": name})
    return cursor.fetchone() is not None


def current(cursor: Cursor, tenant_id: str, names: Sequence[str]) -> dict[str, int]:
    """Return the current version of each template of `names` that is in use."""
    run_as_tenant(cursor, CURRENT, {"tenant_id": tenant_id, "names": list(names)})
    return dict(cursor.fetchall())


def load_for(cursor: Cursor, tenant_id: str, keys: Sequence[tuple[str, str, int]]) -> list[tuple[Any, ...]]:
    """Return versions of one tenant as (tenant, name, number, default locale, variables, bodies)."""
    run_as_tenant(cursor, LOAD, _wanted(keys) | {"tenant_id": tenant_id})
    return cursor.fetchall()


def load(connection: Connection, keys: Sequence[tuple[str, str, int]]) -> list[tuple[Any, ...]]:
    """Return versions of any tenants, for the worker, in the form of `load_for`."""
    return [tuple(row) for row in connection.exec_driver_sql(LOAD, _wanted(keys))]


def _wanted(keys: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    tenants, names, numbers = zip(*keys, strict=True)
    return {"tenants": list(tenants), "names": list(names), "numbers": list(numbers)}
