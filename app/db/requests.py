"""Connections for requests: few, watched, and refused at once while the database does not answer.

A database that is slow, paused or cut off must not take every API process with it. Three bounds hold that:
a statement has a time-out at the server; a connection whose answer is overdue in spite of it (the server is
stopped, or the network swallows its packets) has its socket shut down, which ends the wait of the thread that
holds it; and once a request has waited for a connection in vain, those that follow do not wait, so threads stay
free for the requests that need no database.

Work gets the driver's own cursor: SQLAlchemy's pool is used, its connection and result objects are not, because
they cost a request as much as the rest of the service does.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import psycopg2
import psycopg2.extensions
from sqlalchemy.engine import Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

Result = TypeVar("Result")
Cursor: TypeAlias = psycopg2.extensions.cursor
DriverConnection: TypeAlias = psycopg2.extensions.connection

_SHED_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 0.5
_NOT_OURS = ("08", "25", "40", "53", "55", "57", "58")
"""SQLSTATE classes of a database that cannot serve now: cut off, read-only, contended, full, going down."""


class DatabaseBusyError(Exception):
    """No connection was free in time; nothing was done."""


class DatabaseDownError(Exception):
    """The database cannot be reached, or did not answer in time; whether the work was done is not known."""


class RequestPool:
    """Lends an engine's connections to requests. The engine is in autocommit mode and not pinged at checkout."""

    def __init__(self, engine: Engine, overdue_seconds: float) -> None:
        self._engine = engine
        self._overdue_seconds = overdue_seconds
        self._shed_until = 0.0
        self._busy: dict[PoolProxiedConnection, float] = {}
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    def once(self, work: Callable[[Cursor], Result]) -> Result:
        """Run `work` with a cursor; raise DatabaseBusyError, DatabaseDownError or what else the driver raises."""
        result, is_dead = self._attempt(work)
        if is_dead is not None:
            raise DatabaseDownError from is_dead
        return cast("Result", result)

    def run(self, work: Callable[[Cursor], Result]) -> Result:
        """Run `work`, and once more if its connection turned out to be dead.

        After a restart of the server every pooled connection is. `work` must be harmless when repeated, even if
        its first run did commit.
        """
        result, is_dead = self._attempt(work)
        return cast("Result", result) if is_dead is None else self.once(work)

    def _attempt(self, work: Callable[[Cursor], Result]) -> tuple[Result | None, psycopg2.Error | None]:
        """Return the result, or the error that the connection died of."""
        lent = self._checked_out()
        self._busy[lent] = time.monotonic() + self._overdue_seconds
        if self._watcher is None:
            self._watch()
        try:
            with cast("DriverConnection", lent).cursor() as cursor:
                return work(cursor), None
        except psycopg2.Error as error:
            if cast("DriverConnection", lent.dbapi_connection).closed:
                self._forget(lent, error)
                return None, error
            if (error.pgcode or "").startswith(_NOT_OURS):
                raise DatabaseDownError from error
            raise
        finally:
            del self._busy[lent]
            lent.close()

    def _checked_out(self) -> PoolProxiedConnection:
        pool = self._engine.pool
        assert isinstance(pool, QueuePool)
        if time.monotonic() < self._shed_until and pool.checkedout() >= pool.size():
            raise DatabaseBusyError
        try:
            return self._engine.raw_connection()
        except PoolTimeoutError as error:
            self._shed_until = time.monotonic() + _SHED_SECONDS
            raise DatabaseBusyError from error
        except (DBAPIError, psycopg2.Error) as error:
            raise DatabaseDownError from error

    def _forget(self, lent: PoolProxiedConnection, error: psycopg2.Error) -> None:
        """Drop a dead connection and all that lie in the pool: they were made before it died."""
        lent.invalidate(error)
        self._engine.dispose()

    def _watch(self) -> None:
        with self._lock:
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._look, name="overdue-connections", daemon=True)
                self._watcher.start()

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_LOOK_EVERY_SECONDS)
            now = time.monotonic()
            for lent, deadline in list(self._busy.items()):
                if now > deadline:
                    _hang_up(lent.dbapi_connection)


def _hang_up(connection: DBAPIConnection | None) -> None:
    """Shut a connection's socket down, so that the thread which waits for its answer gets an error."""
    # It may be closed or given back at this very moment: then nothing waits for it any more.
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(cast("Any", connection).fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
