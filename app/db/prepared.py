"""A statement that is planned once a connection: for one that runs with every request, planning is a third of it.

It is prepared in SQL, when it is first missed, so it holds for as long as its session: behind a pooler, in session
mode. PostgreSQL plans it anew by itself when a table or the role changes.
"""

import re
from collections.abc import Mapping
from typing import Any

import psycopg2.errors

from app.db.requests import Cursor

_NAMED = re.compile(r"%\((\w+)\)s")


class Prepared:
    """`statement` with named parameters, whose types are given where they are not `text`."""

    def __init__(self, name: str, statement: str, **types: str) -> None:
        names = list(dict.fromkeys(_NAMED.findall(statement)))
        numbered = _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", statement)
        kinds = ", ".join(types.get(parameter, "text") for parameter in names)
        self._prepare = f"PREPARE {name} ({kinds}) AS {numbered}"
        self._execute = f"EXECUTE {name} ({', '.join(f'%({parameter})s' for parameter in names)})"

    def run(self, cursor: Cursor, before: str, values: Mapping[str, Any]) -> None:
        """Execute it behind the statements `before`, in one message and so in one transaction."""
        try:
            cursor.execute(before + self._execute, values)
        except psycopg2.errors.InvalidSqlStatementName:
            cursor.execute(self._prepare)
            cursor.execute(before + self._execute, values)
