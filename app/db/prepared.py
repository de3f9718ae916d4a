"""Statements that are planned once a connection and not once a request.

A statement that reads ninety daily partitions takes 12 to 50 ms to plan and 1 to 2 ms to run. Prepared, it keeps
one plan for all values, and PostgreSQL leaves out the partitions that the bounds on the id exclude when it
starts to run it. The plan is made anew by itself when a partition comes or goes.

A plan outlives the statistics it was made with: a partition that was empty then would be scanned whole once it is
full. So these statements are planned without the kinds of nodes that would do that; what is left are the indexes,
in their order.
"""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from app.db.requests import Cursor, DriverConnection
from app.db.tenancy import run_as_tenant

PLANNED = """SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; """

_known: WeakKeyDictionary[DriverConnection, set[str]] = WeakKeyDictionary()


class Prepared:
    """A statement with the PostgreSQL types of its parameters, in which `%(name)s` stands for a parameter."""

    def __init__(self, name: str, statement: str, **types: str) -> None:
        self.name = name
        self.types = types
        places = {parameter: f"${number}" for number, parameter in enumerate(types, 1)}
        self.prepare = f"PREPARE {name} ({', '.join(types.values())}) AS {statement % places}"
        self.execute = f"EXECUTE {name} ({', '.join(f'%({parameter})s' for parameter in types)})"


def run_prepared(cursor: Cursor, prepared: Prepared, values: Mapping[str, Any]) -> None:
    """Run a prepared statement for the tenant in `values["tenant_id"]`, as `run_as_tenant` does.

    The first run on a connection costs a round trip more. A connection is used by one thread at a time.
    """
    known = _known.setdefault(cursor.connection, set())
    if prepared.name not in known:
        cursor.execute(prepared.prepare)
        known.add(prepared.name)
    run_as_tenant(cursor, PLANNED + prepared.execute, values)
