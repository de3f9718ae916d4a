"""What tenants say: the defaults of a tenant, and its categories.

Every statement may be sent twice with the same values, as requests are.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.domain.circumstances import category_from, tenant_from
from app.domain.preferences import CategoryPolicy, TenantPolicy

CATEGORIES_LIMIT = 500
"""Of one tenant; the worker keeps the categories of the tenants it serves in memory."""

_TENANT = "time_zone, locale, quiet_start, quiet_end, channels, quiet, updated_at"
_CATEGORY = "name, is_mandatory, channels, quiet, updated_at"

FIND_TENANT = f"SELECT {_TENANT} FROM tenant_policy WHERE tenant_id = %(tenant_id)s"  # noqa: S608

SET_TENANT = f"""
INSERT INTO tenant_policy (tenant_id, time_zone, locale, quiet_start, quiet_end, channels, quiet)
VALUES (%(tenant_id)s, %(time_zone)s, %(locale)s, %(quiet_start)s::time, %(quiet_end)s::time,
        %(channels)s::jsonb, %(quiet)s::jsonb)
ON CONFLICT (tenant_id) DO UPDATE
SET time_zone = EXCLUDED.time_zone, locale = EXCLUDED.locale, quiet_start = EXCLUDED.quiet_start,
    quiet_end = EXCLUDED.quiet_end, channels = EXCLUDED.channels, quiet = EXCLUDED.quiet, updated_at = now()
RETURNING {_TENANT}
"""  # noqa: S608  put together of constants

FIND_CATEGORY = f"""
SELECT {_CATEGORY} FROM category_policy WHERE tenant_id = %(tenant_id)s AND name = %(name)s
"""  # noqa: S608  put together of constants

PAGE_CATEGORIES = f"""
SELECT {_CATEGORY} FROM category_policy
WHERE tenant_id = %(tenant_id)s AND name > %(after)s
ORDER BY name
LIMIT %(limit)s
"""  # noqa: S608  put together of constants

# Two that declare at the same time may pass the limit by one: it is there to bound memory, not to be exact.
SET_CATEGORY = f"""
INSERT INTO category_policy (tenant_id, name, is_mandatory, channels, quiet)
SELECT %(tenant_id)s, %(name)s, %(is_mandatory)s::boolean, %(channels)s::jsonb, %(quiet)s::jsonb
WHERE (SELECT count(*) FROM category_policy WHERE tenant_id = %(tenant_id)s AND name <> %(name)s) < %(limit)s
ON CONFLICT (tenant_id, name) DO UPDATE
SET is_mandatory = EXCLUDED.is_mandatory, channels = EXCLUDED.channels, quiet = EXCLUDED.quiet, updated_at = now()
RETURNING {_CATEGORY}
"""  # noqa: S608  put together of constants

DELETE_CATEGORY = "DELETE FROM category_policy WHERE tenant_id = %(tenant_id)s AND name = %(name)s RETURNING name"


OF_TENANTS = """
SELECT w.tenant_id, t.time_zone, t.locale, t.quiet_start, t.quiet_end, t.channels, t.quiet,
       (SELECT json_agg(json_build_array(c.name, c.is_mandatory, c.channels, c.quiet))
        FROM category_policy c WHERE c.tenant_id = w.tenant_id)
FROM unnest(%(tenants)s::text[]) AS w (tenant_id)
LEFT JOIN tenant_policy t ON t.tenant_id = w.tenant_id
"""


class TenantRow(NamedTuple):
    """The defaults of a tenant as stored."""

    time_zone: str
    locale: str
    quiet_start: time
    quiet_end: time
    channels: dict[str, bool]
    quiet: dict[str, bool]
    updated_at: datetime


class CategoryRow(NamedTuple):
    """A declared category as stored; `is_mandatory` is None where the tenant leaves that to us."""

    name: str
    is_mandatory: bool | None
    channels: dict[str, bool]
    quiet: dict[str, bool]
    updated_at: datetime


def find_tenant(cursor: Cursor, tenant_id: str) -> TenantRow | None:
    """Return what a tenant said about everything, or None."""
    run_as_tenant(cursor, FIND_TENANT, {"tenant_id": tenant_id})
    row = cursor.fetchone()
    return None if row is None else TenantRow(*row)


def set_tenant(cursor: Cursor, values: Mapping[str, Any]) -> TenantRow:
    """Store a tenant's defaults; `values` are the parameters of `SET_TENANT`."""
    run_as_tenant(cursor, SET_TENANT, values)
    (row,) = cursor.fetchall()
    return TenantRow(*row)


def find_category(cursor: Cursor, tenant_id: str, name: str) -> CategoryRow | None:
    """Return a declared category, or None."""
    run_as_tenant(cursor, FIND_CATEGORY, {"tenant_id": tenant_id, "name": name})
    row = cursor.fetchone()
    return None if row is None else CategoryRow(*row)


def page_categories(cursor: Cursor, tenant_id: str, after: str, limit: int) -> list[CategoryRow]:
    """Return up to `limit` declared categories by name, those after the name `after`."""
    run_as_tenant(cursor, PAGE_CATEGORIES, {"tenant_id": tenant_id, "after": after, "limit": limit})
    return [CategoryRow(*row) for row in cursor]


def set_category(cursor: Cursor, values: Mapping[str, Any]) -> CategoryRow | None:
    """Declare a category, or declare it anew; None when the tenant has too many of them."""
    run_as_tenant(cursor, SET_CATEGORY, {**values, "limit": CATEGORIES_LIMIT})
    row = cursor.fetchone()
    return None if row is None else CategoryRow(*row)


def delete_category(cursor: Cursor, tenant_id: str, name: str) -> None:
    """Take a declaration back; that there was none is no fault."""
    run_as_tenant(cursor, DELETE_CATEGORY, {"tenant_id": tenant_id, "name": name})


def of_tenants(
    connection: Connection, tenants: Sequence[str]
) -> dict[str, tuple[TenantPolicy, dict[str, CategoryPolicy]]]:
    """Return what each of `tenants` says, for the worker; those that say nothing are there too."""
    found: dict[str, tuple[TenantPolicy, dict[str, CategoryPolicy]]] = {}
    for tenant, *columns, declared in connection.exec_driver_sql(OF_TENANTS, {"tenants": list(tenants)}):
        found[tenant] = (tenant_from(*columns), {row[0]: category_from(*row) for row in declared or ()})
    return found
