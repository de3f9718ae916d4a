"""Connections for requests: few, watched, and refused at once while the database does not answer.

A database that is slow, paused or cut off must not take every API process with it. Three bounds hold that:
a statement has a time-out at the server; a connection whose answer is overdue in spite of it (the server is
stopped, or the network swallows its packets) has its socket shut down, which ends the wait of the thread that
holds it; and once a request has waited for a connection in vain, those that follow do not wait, so threads stay
free for the requests that need no database.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

Result = TypeVar("Result")

_SHED_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 0.5


class DatabaseBusyError(Exception):
    """No connection was free in time; nothing was done."""


class RequestPool:
    """Lends an engine's connections to requests. The engine is in autocommit mode and not pinged at checkout."""

    def __init__(self, engine: Engine, overdue_seconds: float) -> None:
        self._engine = engine
        self._overdue_seconds = overdue_seconds
        self._shed_until = 0.0
        self._busy: dict[Connection, float] = {}
        self._watching = threading.Event()
        self._lock = threading.Lock()

    def once(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` with a connection; raise DatabaseBusyError, or what the driver raises."""
        with self._lent() as connection:
            return work(connection)

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work`, and once more if its connection turned out to be dead.

        After a restart of the server every pooled connection is. `work` must be harmless when repeated, even if
        its first run did commit.
        """
        try:
            return self.once(work)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        return self.once(work)

    @contextlib.contextmanager
    def _lent(self) -> Iterator[Connection]:
        connection = self._checked_out()
        self._busy[connection] = time.monotonic() + self._overdue_seconds
        if not self._watching.is_set():
            self._watch()
        try:
            yield connection
        finally:
            del self._busy[connection]
            connection.close()

    def _checked_out(self) -> Connection:
        pool = self._engine.pool
        assert isinstance(pool, QueuePool)
        if time.monotonic() < self._shed_until and pool.checkedout() >= pool.size():
            raise DatabaseBusyError
        try:
            return self._engine.connect()
        except PoolTimeoutError as error:
            self._shed_until = time.monotonic() + _SHED_SECONDS
            raise DatabaseBusyError from error

    def _watch(self) -> None:
        with self._lock:
            if not self._watching.is_set():
                self._watching.set()
                threading.Thread(target=self._look, name="overdue-connections", daemon=True).start()

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_LOOK_EVERY_SECONDS)
            now = time.monotonic()
            for connection, deadline in list(self._busy.items()):
                if now > deadline:
                    _hang_up(connection)


def _hang_up(connection: Connection) -> None:
    """Shut the connection's socket down, so that the thread which waits for its answer gets an error."""
    with contextlib.suppress(Exception):  # it may be closed or given back at this very moment: then nothing waits
        descriptor = os.dup(connection.connection.dbapi_connection.fileno())  # type: ignore[union-attr]
        with socket.socket(fileno=descriptor) as line:
            line.shutdown(socket.SHUT_RDWR)
