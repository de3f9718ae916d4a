"""Connections for requests: few, watched, and refused at once while the database does not answer.

A database that is slow, paused or cut off must not take every API process with it. Three bounds hold that:
a statement has a time-out at the server; a connection whose answer is overdue in spite of it (the server is
stopped, or the network swallows its packets) has its socket shut down, which ends the wait of the thread that
holds it; and once a request has waited for a connection in vain, those that follow do not wait, so threads stay
free for the requests that need no database.

Work gets the driver's own cursor, and a connection that was opened stays with this pool: SQLAlchemy opens them,
but its pool, connection and result objects would cost a request as much as the rest of the service does. To take
one or to give it back is one operation on a deque, without a lock, unless a request has to wait.
"""

import contextlib
import os
import socket
import threading
import time
from collections import deque
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
    """Lends connections to requests, at most as many as the engine's pool may hold.

    The engine is in autocommit mode, so that a connection which comes back is clean, and not pinged at checkout.
    """

    def __init__(self, engine: Engine, overdue_seconds: float) -> None:
        pool = engine.pool
        assert isinstance(pool, QueuePool)
        self._engine = engine
        self._size = pool.size()
        self._wait_seconds = pool.timeout()
        self._overdue_seconds = overdue_seconds
        self._idle: deque[PoolProxiedConnection] = deque()
        self._busy: dict[PoolProxiedConnection, float] = {}
        self._open = 0
        self._waiting = 0
        self._freed = threading.Condition()
        self._shed_until = 0.0
        self._watcher: threading.Thread | None = None

    @property
    def in_use(self) -> int:
        """How many connections are lent right now."""
        return len(self._busy)

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
        lent = self._take()
        self._busy[lent] = time.monotonic() + self._overdue_seconds
        if self._watcher is None:
            self._watch()
        is_alive = True
        try:
            with cast("DriverConnection", lent).cursor() as cursor:
                return work(cursor), None
        except psycopg2.Error as error:
            if cast("DriverConnection", lent.dbapi_connection).closed:
                is_alive = False
                return None, error
            if (error.pgcode or "").startswith(_NOT_OURS):
                raise DatabaseDownError from error
            raise
        finally:
            del self._busy[lent]
            if is_alive:
                self._idle.append(lent)
            else:
                self._drop(lent)
            if self._waiting:
                with self._freed:
                    self._freed.notify()

    def _take(self) -> PoolProxiedConnection:
        lent = self._pop()
        if lent is None:
            with self._freed:
                lent = self._wait()
        if lent is not None:
            return lent
        try:
            return self._engine.raw_connection()
        except (DBAPIError, psycopg2.Error, PoolTimeoutError) as error:
            self._closed(1)
            raise DatabaseDownError from error

    def _pop(self) -> PoolProxiedConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _wait(self) -> PoolProxiedConnection | None:
        """Return the next connection that comes back, or None for the right to open one; `_freed` is held.

        Whoever gives one back looks at `_waiting` after it is in the deque, and `_waiting` was raised before we
        look there: so one of us sees the other.
        """
        now = time.monotonic()
        until = now if now < self._shed_until else now + self._wait_seconds
        self._waiting += 1
        try:
            while True:
                if (lent := self._pop()) is not None:
                    return lent
                if self._open < self._size:
                    self._open += 1
                    return None
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._freed.wait(left)
        finally:
            self._waiting -= 1
        self._shed_until = time.monotonic() + _SHED_SECONDS
        raise DatabaseBusyError

    def _drop(self, dead: PoolProxiedConnection) -> None:
        """Close a dead connection and all idle ones: they were opened before it died."""
        doomed = [dead]
        while (idle := self._pop()) is not None:
            doomed.append(idle)
        for each in doomed:
            each.invalidate()
            each.close()
        self._closed(len(doomed))

    def _closed(self, count: int) -> None:
        with self._freed:
            self._open -= count
            self._freed.notify(count)

    def _watch(self) -> None:
        with self._freed:
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
