"""The audit log: entries are added and read, never changed.

An entry belongs into the message that makes its change, so that there is neither without the other. `entry_of`
returns a common table expression for that: it adds the entry of `app.services.audit.audited` when the change that
it names returned a row. A message that is sent twice, because its first answer was lost, adds no second entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy.engine import Connection

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.domain.audit import Entry

_COLUMNS = """id, tenant_id, actor, actor_role, key_id, action, resource_type, resource_id, changes, address,
           trace_id"""

_ADD = f"""
INSERT INTO audit_entry ({_COLUMNS}, at, count)
SELECT {_COLUMNS}, coalesce(at, now()), count
FROM json_to_recordset(%(entries)s::json) AS e (
    id uuid, tenant_id text, actor text, actor_role text, key_id uuid, action text, resource_type text,
    resource_id text, changes jsonb, address text, trace_id text, at timestamptz, count integer)
ON CONFLICT (id) DO NOTHING
"""  # noqa: S608  put together of constants

PAGE = """
SELECT id::text, at, actor, actor_role, key_id::text, action, resource_type, resource_id, changes, address,
       trace_id, count, tenant_id
FROM audit_entry
WHERE tenant_id = %(tenant_id)s AND id < %(before)s::uuid AND id >= %(since)s::uuid
  AND (%(action)s::text IS NULL OR action = %(action)s::text OR starts_with(action, %(action)s::text || '.'))
  AND (%(actor)s::text IS NULL OR actor = %(actor)s::text)
  AND (%(resource_type)s::text IS NULL OR resource_type = %(resource_type)s::text)
  AND (%(resource_id)s::text IS NULL OR resource_id = %(resource_id)s::text)
ORDER BY id DESC
LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry as it is read. `tenant_id` is empty where the tenant was not known."""

    id: str
    at: datetime
    actor: str
    actor_role: str
    key_id: str | None
    action: str
    resource_type: str
    resource_id: str
    changes: dict[str, Any]
    address: str | None
    trace_id: str | None
    count: int
    tenant_id: str


def entry_of(change: str, *, resource_id: str = "%(audit_resource_id)s", changes: str = "") -> str:
    """Return the expression `audited AS (…)`, which adds one entry if `change` returned any row.

    `change` is the name of an expression of the same statement with RETURNING. `resource_id` and `changes` (a
    jsonb object, merged over the given one) may be expressions in SQL, for what only the statement knows. The
    values are those of `app.services.audit.audited`. All are constants of the code, never from outside.
    """
    all_changes = "%(audit_changes)s::jsonb" + (f" || {changes}" if changes else "")
    return f"""audited AS (
    INSERT INTO audit_entry ({_COLUMNS})
    SELECT %(audit_id)s::uuid, %(tenant_id)s, %(audit_actor)s, %(audit_role)s, %(audit_key_id)s::uuid,
           %(audit_action)s, %(audit_resource_type)s, {resource_id}, {all_changes},
           %(audit_address)s, %(audit_trace_id)s
    WHERE EXISTS (SELECT FROM {change})
    ON CONFLICT (id) DO NOTHING
)"""  # noqa: S608  put together of constants


def add(cursor: Cursor, tenant_id: str, entries: Sequence[Entry]) -> None:
    """Add entries of one tenant in a message of their own, for a change that is no statement."""
    run_as_tenant(cursor, _ADD, {"tenant_id": tenant_id, "entries": _encoded(entries)})


def add_behind(cursor: Cursor, entries: Sequence[Entry]) -> None:
    """Add entries of any tenants, and of none; not behind the policies."""
    cursor.execute(_ADD, {"entries": _encoded(entries)})


def add_within(connection: Connection, entries: Sequence[Entry]) -> None:
    """Add entries in the caller's transaction, for an operator's use case."""
    connection.exec_driver_sql(_ADD, {"entries": _encoded(entries)})


def page(cursor: Cursor, values: Mapping[str, Any]) -> list[EntryRow]:
    """Return a tenant's entries, newest first; `values` are the parameters of `PAGE`."""
    run_as_tenant(cursor, PAGE, values)
    return [EntryRow(*row) for row in cursor]


def page_of_nobody(cursor: Cursor, values: Mapping[str, Any]) -> list[EntryRow]:
    """Return entries as the owner of the table, for operators: those without a tenant are theirs alone."""
    cursor.execute(PAGE, values)
    return [EntryRow(*row) for row in cursor]


def _encoded(entries: Sequence[Entry]) -> str:
    return orjson.dumps([entry.row() for entry in entries]).decode()
