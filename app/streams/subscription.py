"""The one connection to Redis over which a process hears of all inboxes that somebody follows here.

redis-py's own PubSub is not used: it reads and writes on the same connection from wherever it is called, tries to
connect again by itself in the middle of either, and does not say when it did. Here one task writes, one reads, and
a connection that breaks or falls silent is replaced as a whole, with back-off.

What is wanted is gathered, so that a thousand streams that open at once are one command. After a reconnect the
channels are subscribed at a pace, since every one of them makes its clients fetch their inboxes.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Protocol

from redis import RedisError
from redis.asyncio.connection import AbstractConnection

from app.observability import metrics
from app.observability.logging import get_logger

_PING_SECONDS = 5.0
_SILENT_SECONDS = 12.0
_WAIT_SECONDS = 0.1
_WAIT_CAP_SECONDS = 5.0
_BATCH = 500
_BATCH_PAUSE_SECONDS = 0.5
"""1,000 channels a second are subscribed again after an outage of Redis."""
_CONNECT_SECONDS = 2.0
_STEADY_SECONDS = 3.0

_log = get_logger(__name__)


class Listener(Protocol):
    """Who is told what happens on the connection."""

    def channels(self) -> list[str]:
        """Return what has to be subscribed on a connection that is new."""

    def subscribed(self, channel: str) -> None:
        """What is published there comes from now on."""

    def published(self, channel: str, message: bytes) -> None:
        """One message came."""

    def disconnected(self) -> None:
        """Nothing comes until there is another connection."""


class Subscription:
    """Keeps a connection that `connect` makes, subscribed to what is wanted."""

    def __init__(self, connect: Callable[[], AbstractConnection]) -> None:
        self._connect = connect
        self._changes: dict[str, bool] = {}
        self._has_changes = asyncio.Event()
        self._is_up = False

    @property
    def is_up(self) -> bool:
        """Whether Redis answers at this moment, as far as is known."""
        return self._is_up

    def want(self, channel: str, wanted: bool) -> None:
        """Subscribe to a channel soon, or leave it."""
        self._changes[channel] = wanted
        self._has_changes.set()

    async def run(self, listener: Listener) -> None:
        """Stay connected until cancelled."""
        wait = _WAIT_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            connection = self._connect()
            connected_at = loop.time()
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await connection.connect()  # type: ignore[no-untyped-call]
                await self._serve(connection, listener)
            except* (RedisError, OSError) as group:
                # One that lasted is news; one more that did not is known already.
                if loop.time() - connected_at > _STEADY_SECONDS:
                    wait = _WAIT_SECONDS
                if wait == _WAIT_SECONDS:
                    _log.warning("stream_redis_lost", reason=type(_innermost(group)).__name__)
            finally:
                self._is_up = False
                listener.disconnected()
                with suppress(RedisError, OSError):
                    await connection.disconnect(nowait=True)
            metrics.STREAM_RECONNECTS.inc()
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(wait * 2, _WAIT_CAP_SECONDS)

    async def _serve(self, connection: AbstractConnection, listener: Listener) -> None:
        self._changes = dict.fromkeys(listener.channels(), True)
        self._has_changes.set()
        self._is_up = True
        _log.info("stream_redis_connected", channels=len(self._changes))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_read(connection, listener))
            tasks.create_task(self._write(connection))

    async def _write(self, connection: AbstractConnection) -> None:
        """Send what has changed, and a ping when there is nothing, so that a dead connection is noticed."""
        while True:
            try:
                async with asyncio.timeout(_PING_SECONDS):
                    await self._has_changes.wait()
            except TimeoutError:
                await connection.send_command("PING", check_health=False)
                continue
            batch = dict(islice(self._changes.items(), _BATCH))
            for channel in batch:
                del self._changes[channel]
            if not self._changes:
                self._has_changes.clear()
            for command, wanted in (("UNSUBSCRIBE", False), ("SUBSCRIBE", True)):
                channels = [channel for channel, is_wanted in batch.items() if is_wanted is wanted]
                if channels:
                    await connection.send_command(command, *channels, check_health=False)
            if self._changes:
                await asyncio.sleep(_BATCH_PAUSE_SECONDS)


async def _read(connection: AbstractConnection, listener: Listener) -> None:
    while True:
        # A connection with nothing on it still carries the answers to our pings.
        answer = await connection.read_response(timeout=_SILENT_SECONDS)
        match answer:
            case [b"message", bytes(channel), bytes(message)]:
                listener.published(channel.decode(), message)
            case [b"subscribe", bytes(channel), _]:
                listener.subscribed(channel.decode())
            case _:
                continue  # the answer to a ping, or to a channel that was left


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
