"""The suppression list: addresses that nothing is sent to, found by their blind index.

An address stands there once a channel. What is heard about it later changes its reason only if it weighs more: a
complaint stays a complaint whatever bounces afterwards.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant

_SHOWN = "id::text, channel, reason, source, note, masked, address, created_at"
_WEIGHT = "array_position(ARRAY['BOUNCE', 'MANUAL', 'OPT_OUT', 'COMPLAINT'], {})"

# Rows go in in the order of their keys, so two that suppress the same addresses cannot wait for each other.
SUPPRESS = f"""
INSERT INTO suppression AS s (tenant_id, channel, address_index, id, reason, source, note, masked, address)
SELECT g.* FROM unnest(%(tenants)s::text[], %(channels)s::text[], %(indexes)s::bytea[], %(ids)s::uuid[],
                       %(reasons)s::text[], %(sources)s::text[], %(notes)s::text[], %(masks)s::text[],
                       %(addresses)s::bytea[]) AS g (tenant_id, channel, address_index, id, reason, source, note,
                                                     masked, address)
ORDER BY g.tenant_id, g.channel, g.address_index
ON CONFLICT (tenant_id, channel, address_index) DO UPDATE
SET reason = EXCLUDED.reason, source = EXCLUDED.source, note = EXCLUDED.note
WHERE {_WEIGHT.format("EXCLUDED.reason")} > {_WEIGHT.format("s.reason")}
"""  # noqa: S608  put together of constants

FIND = f"""
SELECT {_SHOWN} FROM suppression
WHERE tenant_id = %(tenant_id)s AND channel = %(channel)s AND address_index = %(index)s
"""  # noqa: S608  put together of constants

PAGE = f"""
SELECT {_SHOWN} FROM suppression
WHERE tenant_id = %(tenant_id)s AND (%(before)s::uuid IS NULL OR id < %(before)s::uuid)
  AND (%(channel)s::text IS NULL OR channel = %(channel)s) AND (%(reason)s::text IS NULL OR reason = %(reason)s)
  AND (%(index)s::bytea IS NULL OR address_index = %(index)s)
ORDER BY id DESC
LIMIT %(limit)s
"""  # noqa: S608  put together of constants

DELETE = "DELETE FROM suppression WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid RETURNING channel"

# The LIMIT keeps each look-up one of the whole key, whatever the statistics say.
HIT = """
SELECT w.position FROM unnest(%(positions)s::integer[], %(tenants)s::text[], %(channels)s::text[],
                              %(indexes)s::bytea[]) AS w (position, tenant_id, channel, address_index)
JOIN LATERAL (SELECT FROM suppression s WHERE s.tenant_id = w.tenant_id AND s.channel = w.channel
                     AND s.address_index = w.address_index LIMIT 1) AS hit ON true
"""


class Suppression(NamedTuple):
    """An address as it is put on the list. `id` is a UUIDv7; `address` is sealed, `masked` is for people."""

    tenant_id: str
    channel: str
    address_index: bytes
    id: str
    reason: str
    source: str
    note: str | None
    masked: str
    address: bytes


class SuppressionRow(NamedTuple):
    """An address as it stands on the list."""

    id: str
    channel: str
    reason: str
    source: str
    note: str | None
    masked: str
    address: memoryview
    created_at: datetime


def suppress_one(cursor: Cursor, one: Suppression) -> SuppressionRow:
    """Put an address of a tenant on the list, for a request; return how it stands there now."""
    values = _values([one]) | {"tenant_id": one.tenant_id, "channel": one.channel, "index": one.address_index}
    run_as_tenant(cursor, SUPPRESS, values)
    run_as_tenant(cursor, FIND, values)
    (row,) = cursor.fetchall()
    return SuppressionRow(*row)


def suppress(connection: Connection, batch: Sequence[Suppression]) -> None:
    """Put addresses of any tenants on the list, each at most once in a batch; for receipts and rejections."""
    connection.exec_driver_sql(SUPPRESS, _values(batch))


def find(cursor: Cursor, tenant_id: str, channel: str, index: bytes) -> SuppressionRow | None:
    """Return the entry of an address by its blind index, or None."""
    run_as_tenant(cursor, FIND, {"tenant_id": tenant_id, "channel": channel, "index": index})
    row = cursor.fetchone()
    return None if row is None else SuppressionRow(*row)


def page(cursor: Cursor, values: dict[str, Any]) -> list[SuppressionRow]:
    """Return entries, newest first; `values` are the parameters of `PAGE`."""
    run_as_tenant(cursor, PAGE, values)
    return [SuppressionRow(*row) for row in cursor]


def delete(cursor: Cursor, tenant_id: str, identifier: str) -> bool:
    """Take an address off the list; tell whether it was there."""
    run_as_tenant(cursor, DELETE, {"tenant_id": tenant_id, "id": identifier})
    return cursor.fetchone() is not None


def hits(connection: Connection, asked: Sequence[tuple[str, str, bytes]]) -> set[int]:
    """Return the positions of those of `asked`, as (tenant, channel, blind index), that are on the list."""
    values = {
        "positions": list(range(len(asked))),
        "tenants": [one[0] for one in asked],
        "channels": [one[1] for one in asked],
        "indexes": [one[2] for one in asked],
    }
    return {row[0] for row in connection.exec_driver_sql(HIT, values)}


def _values(batch: Sequence[Suppression]) -> dict[str, Any]:
    columns = list(zip(*batch, strict=True))
    names = ("tenants", "channels", "indexes", "ids", "reasons", "sources", "notes", "masks", "addresses")
    return {name: list(column) for name, column in zip(names, columns, strict=True)}
