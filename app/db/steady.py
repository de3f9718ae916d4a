"""Connections for threads that run one statement after the other, all day: one a thread, kept open, autocommit.

A pool would ping the server at each checkout, a round trip that the worker's hot path does not need. Here a dead
connection shows itself by the statement that fails: it is thrown away, the error goes up, and the next statement
opens a new one. Each statement is its own transaction, committed synchronously.
"""

from collections.abc import Callable
from threading import Lock, local
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

P = ParamSpec("P")
R = TypeVar("R")


class SteadyConnections:
    """One lasting connection per calling thread on an autocommit `engine`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mine = local()
        self._all: set[Connection] = set()
        self._lock = Lock()

    def run(self, query: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `query` on this thread's connection; database errors go up, a broken connection is replaced."""
        connection = self._connection()
        try:
            return query(connection, *args, **kwargs)
        except DBAPIError as error:
            if error.connection_invalidated or connection.invalidated or connection.closed:
                self._drop(connection)
            raise

    def brief(self, query: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `query` on a pooled connection, for threads that need one only now and then."""
        with self._engine.connect() as connection:
            return query(connection, *args, **kwargs)

    def close(self) -> None:
        """Close every connection; threads that run on afterwards open new ones."""
        with self._lock:
            doomed, self._all = self._all, set()
        for connection in doomed:
            connection.invalidate()
            connection.close()
        self._engine.dispose()

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._mine, "connection", None)
        if connection is None or connection.closed:
            connection = self._engine.connect()
            with self._lock:
                self._all.add(connection)
            self._mine.connection = connection
        return connection

    def _drop(self, connection: Connection) -> None:
        self._mine.connection = None
        with self._lock:
            self._all.discard(connection)
        connection.close()
