"""A transaction of several messages, for the few requests that must decide between two statements of one."""

import contextlib
from collections.abc import Iterator

import psycopg2

from app.db.requests import Cursor

# A process that is stopped in between would hold its locks; the server ends its session soon.
_BEGIN = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '5s'"


@contextlib.contextmanager
def transaction(cursor: Cursor) -> Iterator[None]:
    """Commit what the block did, or roll it back when it raises; the connection comes back clean either way."""
    cursor.execute(_BEGIN)
    try:
        yield
    except BaseException:
        with contextlib.suppress(psycopg2.Error):  # a dead connection has rolled back by itself
            cursor.execute("ROLLBACK")
        raise
    cursor.execute("COMMIT")
