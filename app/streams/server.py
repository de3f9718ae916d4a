"""The HTTP side of the stream process: its routes, and the one request that each stream is.

How aiohttp tells that a client is gone: with `handler_cancellation` the task of the request is cancelled as soon
as the connection is lost, also while it waits for something to write; a write that comes in between raises a
ConnectionError. Either way the stream leaves the hub on the way out. A client that vanished without a word
acknowledges nothing, and `TCP_USER_TIMEOUT` bounds how long the kernel goes on trying.
"""

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web

from app.services.open_stream import Admission, Credential, OpenStream
from app.services.refusal import Problem
from app.settings import Settings
from app.streams import answers
from app.streams.frames import retry
from app.streams.hub import Hub
from app.streams.stream import End, Stream

PATH = "/v1/inbox/stream"

_RETRY_SECONDS = 3.0
_STOP_RETRY_SECONDS = (1.0, 5.0)
"""Clients of a process that stops come back at different moments within these."""
_SIGN_IN_THREADS = 4
_SOCKET_BUFFER_BYTES = 16_384
_LIFETIME_SPREAD = 0.1
_USER_ID_LIMIT = 255
_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}
Answer = TypeVar("Answer")


class StreamServer:
    """The routes over one hub. `open_stream` may block, so its calls run in a few threads of their own."""

    def __init__(
        self, settings: Settings, hub: Hub, open_stream: OpenStream, is_connected: Callable[[], bool]
    ) -> None:
        self._hub = hub
        self._open_stream = open_stream
        self._is_connected = is_connected
        self._lifetime_seconds = settings.stream_lifetime_seconds
        self._unacknowledged_ms = int(settings.stream_stalled_seconds * 1000)
        self._origins = settings.stream_allowed_origins
        self._threads = ThreadPoolExecutor(_SIGN_IN_THREADS, thread_name_prefix="sign-in")
        self._transports: dict[Stream, asyncio.Transport] = {}
        self._is_stopping = False

    def application(self) -> web.Application:
        """Return what serves the routes."""
        application = web.Application(middlewares=[answers.cross_origin(self._origins), answers.errors])
        application.router.add_get(PATH, self._stream, allow_head=False)
        application.router.add_get("/live", self._live)
        application.router.add_get("/ready", self._ready)
        return application

    def look_again(self, credential: Credential) -> Awaitable[float]:
        """Look at a credential again, in a thread."""
        return self._in_thread(partial(self._open_stream.look_again, credential))

    def cut_off(self, stream: Stream) -> None:
        """Close the connection of a stream at once, whatever waits to be written."""
        transport = self._transports.get(stream)
        if transport is not None:
            transport.abort()

    def stop(self) -> None:
        """End every stream, and take no new ones."""
        self._is_stopping = True
        for stream in self._hub.streams():
            stream.finish(End.STOPPED, random.uniform(*_STOP_RETRY_SECONDS))

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _live(self, _request: web.Request) -> web.Response:
        return answers.ok()

    async def _ready(self, request: web.Request) -> web.Response:
        if self._is_connected() and not self._is_stopping:
            return answers.ok()
        return answers.error(
            request,
            HTTPStatus.SERVICE_UNAVAILABLE,
            "INFRA_STREAMS_NOT_READY",
            "Redis does not answer, or this process stops.",
            headers={"Retry-After": "5"},
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        query = _query(request, {"ticket", "user_id"})
        with self._hub.place(is_open=not self._is_stopping):
            admission = await self._in_thread(self._admit(request, query))
            lifetime = self._lifetime_seconds * random.uniform(1 - _LIFETIME_SPREAD, 1 + _LIFETIME_SPREAD)
            stream = self._hub.join(admission, renew_at=time.time() + lifetime)
            if self._is_stopping:
                stream.finish(End.STOPPED, _RETRY_SECONDS)
            try:
                return await self._serve(request, stream)
            finally:
                self._transports.pop(stream, None)
                self._hub.leave(stream)

    def _admit(self, request: web.Request, query: dict[str, str]) -> Callable[[], Admission]:
        ticket = query.get("ticket")
        if ticket is not None:
            if "user_id" in query:
                raise answers.QueryError([Problem("user_id", "is in the ticket already")])
            return partial(self._open_stream.admit_ticket, ticket)
        user_id = query.get("user_id")
        if user_id is not None and not (0 < len(user_id) <= _USER_ID_LIMIT and "\0" not in user_id):
            raise answers.QueryError([Problem("user_id", f"must be 1 to {_USER_ID_LIMIT} characters")])
        return partial(self._open_stream.admit, request.headers.get("Authorization"), user_id)

    async def _serve(self, request: web.Request, stream: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers=_HEADERS | request[answers.CROSS_ORIGIN])
        response.force_close()
        loop = asyncio.get_running_loop()
        stream.opened_at = stream.touched_at = loop.time()
        try:
            self._keep_small(request, stream)
            await response.prepare(request)
            chunk = retry(_RETRY_SECONDS)
            while chunk:
                stream.writing_since = loop.time()
                await response.write(chunk)
                await request.writer.drain()
                stream.writing_since = None
                stream.touched_at = loop.time()
                chunk = await stream.take()
        except ConnectionError:
            stream.finish(End.CLIENT)
        return response

    def _keep_small(self, request: web.Request, stream: Stream) -> None:
        """Bound what the process and the kernel hold for a client that does not read."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        self._transports[stream] = transport
        transport.set_write_buffer_limits(high=_SOCKET_BUFFER_BYTES)
        line = transport.get_extra_info("socket")
        if line is not None and line.family in {socket.AF_INET, socket.AF_INET6}:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._unacknowledged_ms)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _query(request: web.Request, allowed: Collection[str]) -> dict[str, str]:
    """Return the query; raise QueryError for arguments that are unknown or repeated."""
    given = request.query
    problems = [
        Problem(name, "is unknown" if name not in allowed else "is given twice")
        for name in dict.fromkeys(given)
        if name not in allowed or len(given.getall(name)) > 1
    ]
    if problems:
        raise answers.QueryError(problems[:20])
    return dict(given)
