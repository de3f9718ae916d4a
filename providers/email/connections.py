"""A pool of SMTP connections: each send has one for itself, and gives it back for the next.

Opening one is the dear part (TCP, EHLO, TLS, login), so a connection is used again while it is fresh, newest
first; before a use after a pause it is asked whether it still lives. The pool belongs to one event loop.
"""

import asyncio
import socket
import ssl
from collections import deque
from dataclasses import dataclass

import aiosmtplib

from providers.email.smtp_status import Phase
from providers.outcome import Scope

STALE_SECONDS = 1.0
"""A connection unused for longer is asked (RSET) before it is given a message."""
IDLE_SECONDS = 30.0
"""An unused connection is closed after this, before the usual server does it."""
QUIT_SECONDS = 1.0
CONNECTIONS = 256
"""At most so many connections a process: more than a worker's window, so that the pool is never what waits."""


class ServerUnfitError(Exception):
    """The server lacks what the configuration demands, so nothing may be sent through it."""

    def __init__(self, code: str, reason: str, scope: Scope) -> None:
        super().__init__(reason)
        self.code = code
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect, and how. `tls` is "none", "starttls" (required) or "implicit"."""

    host: str
    port: int
    tls: str = "none"
    username: str = ""
    password: str = ""
    connections: int = CONNECTIONS
    connect_seconds: float = 10.0


@dataclass(slots=True)
class Progress:
    """How far one send has come; read after an interruption."""

    phase: Phase = Phase.POOL


class Connection:
    """One logged-in connection."""

    __slots__ = ("client", "is_dirty", "is_reused", "used_at")

    def __init__(self, client: aiosmtplib.SMTP) -> None:
        self.client = client
        self.is_dirty = False
        self.is_reused = False
        self.used_at = 0.0

    async def command(self, *parts: bytes) -> tuple[int, str]:
        """Send one command and return code and text of the reply."""
        reply = await self.client.execute_command(*parts, timeout=None)
        return reply.code, reply.message

    async def body(self, content: bytes) -> tuple[int, str]:
        """Send the message after a 354, and return the reply to its end. `content` has CRLF line ends."""
        protocol = self.client.protocol
        if protocol is None:
            raise aiosmtplib.SMTPServerDisconnected("Connection lost")
        stuffed = content.replace(b"\r\n.", b"\r\n..")
        if stuffed.startswith(b"."):
            stuffed = b"." + stuffed
        protocol.write(stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n")
        protocol.write(b".\r\n")
        reply = await protocol.read_response(timeout=None)
        return reply.code, reply.message


class ConnectionPool:
    """At most `endpoint.connections` connections to one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: deque[Connection] = deque()
        self._slots = asyncio.Semaphore(endpoint.connections)
        self._tls = ssl.create_default_context() if endpoint.tls != "none" else None
        self._hostname = _own_name()
        self._reaper: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> int:
        """How many connections wait for their next use."""
        return len(self._idle)

    async def acquire(self, progress: Progress) -> Connection:
        """Return a live connection for one send; raise what aiosmtplib raises, with the phase in `progress`."""
        await self._slots.acquire()
        try:
            return await self._reuse() or await self.open(progress)
        except BaseException:
            self._slots.release()
            raise

    def release(self, connection: Connection, *, keep: bool) -> None:
        """Give a connection back; `keep` when its state is known and the server did not say good-bye."""
        self._slots.release()
        if not keep or not connection.client.is_connected:
            connection.client.close()
            return
        loop = asyncio.get_running_loop()
        connection.used_at = loop.time()
        connection.is_reused = True
        self._idle.append(connection)
        if self._reaper is None:
            self._reaper = loop.call_later(IDLE_SECONDS, self._reap)

    async def open(self, progress: Progress) -> Connection:
        """Connect, greet, encrypt and log in, each step noted in `progress`."""
        endpoint = self._endpoint
        progress.phase = Phase.CONNECT
        client = aiosmtplib.SMTP(
            hostname=endpoint.host,
            port=endpoint.port,
            use_tls=endpoint.tls == "implicit",
            start_tls=False,
            tls_context=self._tls,
            local_hostname=self._hostname,
            timeout=endpoint.connect_seconds,
        )
        try:
            await client.connect()
            progress.phase = Phase.HELLO
            await client.ehlo()
            if endpoint.tls == "starttls":
                await _encrypt(client, progress)
            if endpoint.username:
                await _log_in(client, endpoint, progress)
        except BaseException:
            client.close()
            raise
        return Connection(client)

    async def close(self) -> None:
        """Say good-bye on every idle connection."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        idle, self._idle = list(self._idle), deque()
        await asyncio.gather(*(_quit(connection.client) for connection in idle))

    async def _reuse(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            fresh = now - connection.used_at
            if fresh < IDLE_SECONDS and await _is_usable(connection, is_stale=fresh > STALE_SECONDS):
                return connection
            connection.client.close()
        return None

    def _reap(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and loop.time() - self._idle[0].used_at >= IDLE_SECONDS:
            self._idle.popleft().client.close()
        due = self._idle[0].used_at + IDLE_SECONDS if self._idle else None
        self._reaper = loop.call_at(due, self._reap) if due is not None else None


async def _encrypt(client: aiosmtplib.SMTP, progress: Progress) -> None:
    progress.phase = Phase.TLS
    if not client.supports_extension("starttls"):
        # Perhaps somebody on the way stripped the offer: going on in clear would hand over the password.
        raise ServerUnfitError("tls_missing", "the server does not offer STARTTLS", Scope.PROVIDER)
    await client.starttls()
    await client.ehlo()


async def _log_in(client: aiosmtplib.SMTP, endpoint: Endpoint, progress: Progress) -> None:
    progress.phase = Phase.LOGIN
    if not client.supported_auth_methods:
        raise ServerUnfitError("auth_unsupported", "the server offers no login that we know", Scope.ACCOUNT)
    await client.login(endpoint.username, endpoint.password)


async def _is_usable(connection: Connection, *, is_stale: bool) -> bool:
    if not connection.client.is_connected:
        return False
    if not connection.is_dirty and not is_stale:
        return True
    try:
        await connection.client.rset(timeout=QUIT_SECONDS)
    except (aiosmtplib.SMTPException, OSError):
        return False
    connection.is_dirty = False
    return True


async def _quit(client: aiosmtplib.SMTP) -> None:
    try:
        await client.quit(timeout=QUIT_SECONDS)
    except (aiosmtplib.SMTPException, OSError):
        client.close()


def _own_name() -> str:
    name = socket.gethostname()
    return name if name.isascii() and name.replace("-", "").replace(".", "").isalnum() else "localhost"
