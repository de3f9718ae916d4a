"""HTTP/1.1 on a socket, as much of it as the simulator needs, at a quarter of a framework's cost.

Under load the simulator shares its cores with the service that it measures: aiohttp's server took 310 µs of CPU
a call on a busy machine, this takes 80. Keep-alive, pipelining, `Expect: 100-continue` and HEAD are there; a body
without Content-Length is refused (411). A handler is a plain function: a reply that has to wait says so, and the
connection waits with it, so answers keep their order.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from math import isinf
from typing import cast

MAX_HEAD_BYTES = 32 * 1024
MAX_BODY_BYTES = 1024 * 1024
MAX_LENGTH_DIGITS = 12
NO_CONTENT = 204
_END = b"\r\n\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Request:
    """One request, complete. `target` is path and query as they were sent."""

    __slots__ = ("_head", "_lower", "body", "method", "target")

    def __init__(self, method: str, target: str, head: bytes, lower: bytes, body: bytes) -> None:
        self.method = method
        self.target = target
        self.body = body
        self._head = head
        self._lower = lower

    def header(self, name: bytes) -> str:
        """Return a header's value, or an empty text; `name` in lower case."""
        return _header(self._head, self._lower, name)


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer, and when: infinite `delay_seconds` is never, `drops` closes without an answer."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    delay_seconds: float = 0.0
    drops: bool = False

    def encode(self, *, has_body: bool = True, closes: bool = False) -> bytes:
        """Return the reply as it goes over the wire."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        if closes:
            extra += "Connection: close\r\n"
        if self.status != NO_CONTENT:
            extra = f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\n{extra}"
        return _STATUS_LINES[self.status] + extra.encode() + (b"\r\n" + self.body if has_body else b"\r\n")


Handler = Callable[[Request], Reply]


class HttpConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, handler: Handler, open_connections: "set[HttpConnection]") -> None:
        self._handler = handler
        self._open = open_connections
        self._buffer = b""
        self._is_waiting = False
        self._has_continued = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the way back."""
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  nothing depends on the reason
        """Forget the reply that nobody waits for any more."""
        self._open.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        """Close at once, without what is still to be written."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and answer each request that they complete."""
        self._buffer = self._buffer + data if self._buffer else data
        self._answer_all()

    def _answer_all(self) -> None:
        while self._buffer and not self._is_waiting and self._transport is not None:
            request = self._next()
            if request is None:
                return
            closes = request.header(b"connection").lower() == "close"
            self._give(self._handler(request), has_body=request.method != "HEAD", closes=closes)

    def _next(self) -> Request | None:
        """Return the next request when all of it has come; refuse what is none."""
        buffer = self._buffer
        end = buffer.find(_END)
        if end < 0:
            if len(buffer) > MAX_HEAD_BYTES:
                self._refuse(431)
            return None
        head = buffer[:end]
        lower = head.lower()
        line = head.partition(b"\r\n")[0].split(b" ")
        length = _header(head, lower, b"content-length") or "0"
        if len(line) != 3 or not line[2].startswith(b"HTTP/1.") or not _is_length(length):  # noqa: PLR2004  method, target, version
            self._refuse(400)
        elif b"\r\ntransfer-encoding:" in lower:
            self._refuse(411)
        elif int(length) > MAX_BODY_BYTES:
            self._refuse(413)
        else:
            return self._complete(line, head, lower, int(length))
        return None

    def _complete(self, line: list[bytes], head: bytes, lower: bytes, length: int) -> Request | None:
        start = len(head) + len(_END)
        if len(self._buffer) < start + length:
            if not self._has_continued and b"\r\nexpect: 100-continue" in lower and self._transport is not None:
                self._has_continued = True
                self._transport.write(_STATUS_LINES[100] + b"\r\n")
            return None
        body = self._buffer[start : start + length]
        self._buffer = self._buffer[start + length :]
        self._has_continued = False
        return Request(line[0].decode("latin-1"), line[1].decode("latin-1"), head, lower, body)

    def _refuse(self, status: int) -> None:
        self._buffer = b""
        self._give(Reply(status, b'{"error":{"code":"bad_request"}}'), has_body=True, closes=True)

    def _give(self, reply: Reply, *, has_body: bool, closes: bool) -> None:
        if reply.delay_seconds:
            self._is_waiting = True
            if not isinf(reply.delay_seconds):
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(reply.delay_seconds, self._give_late, reply, has_body, closes)
            return
        self._write(reply, has_body=has_body, closes=closes)

    def _give_late(self, reply: Reply, has_body: bool, closes: bool) -> None:
        self._timer = None
        self._is_waiting = False
        self._write(reply, has_body=has_body, closes=closes)
        self._answer_all()

    def _write(self, reply: Reply, *, has_body: bool, closes: bool) -> None:
        if self._transport is None:
            return
        if reply.drops:
            self._transport.abort()
            return
        self._transport.write(reply.encode(has_body=has_body, closes=closes))
        if closes:
            self._transport.close()


def _header(head: bytes, lower: bytes, name: bytes) -> str:
    start = lower.find(b"\r\n" + name + b":")
    if start < 0:
        return ""
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else None].strip().decode("latin-1")


def _is_length(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_LENGTH_DIGITS
