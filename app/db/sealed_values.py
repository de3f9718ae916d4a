"""Every column that holds sealed values, and how to go through one: for changing keys, and for counting them.

A walk goes by the primary key in steps, reads without locks, and writes by compare-and-set: a value that somebody
else wrote meanwhile was sealed with the newest key anyway. Only the header of a value is looked at to find those
of other keys, which spares reading the values that are kept out of line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import Connection

from app.db import partitions


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """A column of sealed values. `key` is the primary key, with the type of each column.

    `bound_to` names the columns of the context, in its order, behind its `kind`. `is_daily` says that
    the table is partitioned by day: it is walked day by day, so that no statement is about all of it.
    """

    table: str
    column: str
    kind: str
    key: tuple[tuple[str, str], ...]
    bound_to: tuple[str, ...]
    is_daily: bool = False

    @property
    def name(self) -> str:
        """The column with its table."""
        return f"{self.table}.{self.column}"


_USER = (("tenant_id", "text"), ("id", "text"))
_DEVICE = (("tenant_id", "text"), ("user_id", "text"), ("id", "uuid"))
_BATCH = (("tenant_id", "text"), ("id", "uuid"))
_PIECE = (("tenant_id", "text"), ("batch_id", "uuid"), ("start", "bigint"))
_ENTRY = (("tenant_id", "text"), ("id", "uuid"))

SEALED_COLUMNS = (
    SealedColumn("app_user", "email", "email", _USER, ("tenant_id", "id")),
    SealedColumn("app_user", "phone", "phone", _USER, ("tenant_id", "id")),
    SealedColumn("device", "token", "device", _DEVICE, ("tenant_id", "id")),
    SealedColumn("suppression", "address", "suppression", _ENTRY, ("tenant_id", "channel", "id")),
    SealedColumn("notification", "sealed", "notification", (("id", "uuid"),), ("tenant_id", "id"), is_daily=True),
    SealedColumn("batch", "sealed", "batch", _BATCH, ("tenant_id", "id")),
    SealedColumn("batch_piece", "sealed", "batch-piece", _PIECE, ("tenant_id", "batch_id", "start")),
)
"""A new column of sealed values gets its line here. An empty value is one that says nothing, and has no key."""

_COUNT = """
SELECT (get_byte(header, 0) << 8) + get_byte(header, 1), count(*)
FROM (SELECT substring({column} FROM 2 FOR 2) AS header FROM {table} WHERE {column} <> '') AS h
GROUP BY 1 ORDER BY 1
"""

_STEP = """
SELECT {keys}, {bound}, {column} FROM {table}
WHERE {column} <> '' AND substring({column} FROM 2 FOR 2) <> %(key_id)s{beyond}
ORDER BY {order}
LIMIT %(limit)s
"""

_WRITE = """
UPDATE {table} t SET {column} = v.made
FROM unnest({arrays}, %(old)s::bytea[], %(made)s::bytea[]) AS v ({order}, old, made)
WHERE {same} AND t.{column} = v.old
"""


@dataclass(frozen=True, slots=True)
class Found:
    """One value that another key sealed: where it is, the values that it is bound to, and itself."""

    key: tuple[Any, ...]
    bound_to: tuple[str, ...]
    sealed: bytes


def parts(connection: Connection, column: SealedColumn) -> list[str]:
    """Return the tables that a column's values lie in: its own, or that of each day, oldest first."""
    if not column.is_daily:
        return [column.table]
    days = sorted(part.day for part in partitions.attached(connection) if part.table == column.table)
    return [f"{column.table}_{day:%Y%m%d}" for day in days]


def count(connection: Connection, column: SealedColumn, part: str) -> dict[int, int]:
    """Return how many values of a column in one of its parts each key sealed, by the key's id."""
    rows = connection.exec_driver_sql(_COUNT.format(table=part, column=column.column))
    return {int(key_id): int(number) for key_id, number in rows}


def step(
    connection: Connection,
    column: SealedColumn,
    part: str,
    *,
    key_id: int,
    after: tuple[Any, ...] | None,
    limit: int,
) -> list[Found]:
    """Return the next values of a column that another key than `key_id` sealed, by primary key beyond `after`."""
    names = [name for name, _ in column.key]
    beyond = ""
    values: dict[str, Any] = {"key_id": key_id.to_bytes(2, "big"), "limit": limit}
    if after is not None:
        places = ", ".join(f"%(after_{name})s::{kind}" for name, kind in column.key)
        beyond = f" AND ({', '.join(names)}) > ({places})"
        values |= {f"after_{name}": str(value) for name, value in zip(names, after, strict=True)}
    statement = _STEP.format(
        keys=", ".join(f"{name}::text" for name in names),
        bound=", ".join(f"{name}::text" for name in column.bound_to),
        column=column.column,
        table=part,
        beyond=beyond,
        order=", ".join(f"{part}.{name}" for name in names),
    )
    width = len(names)
    return [
        Found(tuple(row[:width]), tuple(row[width:-1]), bytes(row[-1]))
        for row in connection.exec_driver_sql(statement, values)
    ]


def replace(connection: Connection, column: SealedColumn, part: str, made: Sequence[tuple[Found, bytes]]) -> int:
    """Put newly sealed values in the place of those that were found; return how many were still the same."""
    names = [name for name, _ in column.key]
    values: dict[str, Any] = {f"key_{name}": [found.key[at] for found, _ in made] for at, name in enumerate(names)}
    values |= {"old": [found.sealed for found, _ in made], "made": [new for _, new in made]}
    statement = _WRITE.format(
        table=part,
        column=column.column,
        arrays=", ".join(f"%(key_{name})s::{kind}[]" for name, kind in column.key),
        order=", ".join(names),
        same=" AND ".join(f"t.{name} = v.{name}" for name in names),
    )
    return connection.exec_driver_sql(statement, values).rowcount
