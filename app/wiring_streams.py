"""The composition root's room for the process that serves live inboxes."""

from collections.abc import Callable
from dataclasses import dataclass

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.db.requests import RequestPool
from app.db.session import make_engine
from app.services.open_stream import OpenStream
from app.settings import Settings
from app.wiring import once_per_process, sign_in, stream_tickets, verify_key

_DATABASE_POOL = 2
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 15.0


@dataclass(frozen=True)
class StreamServices:
    """What the process uses. `connect` returns a connection to Redis that is not open yet."""

    open_stream: OpenStream
    connect: Callable[[], AbstractConnection]


@once_per_process
def stream_services(settings: Settings) -> StreamServices:
    """Return the use case of opening a stream, and the way to Redis."""
    engine = make_engine(
        settings.database_url,
        application_name="arauto-stream",
        pool_size=_DATABASE_POOL,
        statement_timeout_seconds=settings.api_statement_timeout_seconds,
        pool_timeout_seconds=settings.api_pool_timeout_seconds,
        connect_timeout_seconds=2,
        autocommit=True,
        pre_ping=False,
    )
    pool = RequestPool(engine, overdue_seconds=settings.api_statement_timeout_seconds + 2.0)
    keys = verify_key(settings, pool)
    return StreamServices(
        OpenStream(
            sign_in(settings, pool, keys),
            keys.again,
            stream_tickets(settings),
            check_seconds=settings.stream_check_seconds,
        ),
        _connections(settings).make_connection,
    )


def _connections(settings: Settings) -> ConnectionPool:
    """Return what makes connections for subscribing: RESP2, whose messages come as plain lists."""
    pool = ConnectionPool.from_url(
        settings.cache_redis_url,
        socket_timeout=_READ_SECONDS,
        socket_connect_timeout=_CONNECT_SECONDS,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )
    # Set here and not above, where the address could choose another.
    pool.connection_kwargs["protocol"] = 2
    return pool
