"""E-mail through any SMTP server, one message and one recipient a transaction.

Every ending is told by how far the transaction had come. Until the message itself was handed over, a broken
connection or a timeout is a Retry: a server may not deliver what it was not given. After that, only the reply
to the final dot tells, and without it the outcome is Unknown. A second send carries the same Message-ID.
"""

import asyncio
import re
import socket
import ssl
from dataclasses import replace

import aiosmtplib

from providers.base import Message
from providers.email.connections import (
    Connection,
    ConnectionPool,
    Endpoint,
    Progress,
    ServerUnfitError,
)
from providers.email.mime import InvalidAddressError, Mail, parse_sender, render
from providers.email.smtp_status import Phase, verdict_of
from providers.outcome import Accepted, Misconfigured, Outcome, Rejected, Retry, Scope, Unknown
from providers.retry_after import parse_wait
from providers.texts import one_line

CODE_CLOSING = 421
CODE_GO_ON = 354
REASON_CHARACTERS = 200
_QUEUED = re.compile(r"(?i)(?:queued as|taken as|id[ =:])\s*<?([\w.@+-]+)")


class _RefusedError(Exception):
    """The server answered a step of the transaction with something else than success."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class SmtpEmailProvider:
    """Sends mail over pooled connections. `sender` is the default From; built anywhere, used in one event loop."""

    def __init__(self, endpoint: Endpoint, sender: str, timeout_seconds: float = 20.0, name: str = "smtp") -> None:
        self.name = name
        self.deadline_seconds = timeout_seconds
        self._sender = parse_sender(sender)
        self._endpoint = replace(endpoint, connect_seconds=min(endpoint.connect_seconds, timeout_seconds / 2))
        self._pool: ConnectionPool | None = None

    async def start(self) -> None:
        """Make the pool. No connection is opened yet."""
        if self._pool is None:
            self._pool = ConnectionPool(self._endpoint)

    async def close(self) -> None:
        """Close the idle connections."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def send(self, message: Message) -> Outcome:
        """Send one message and say what came of it. Raises nothing but CancelledError."""
        await self.start()
        assert self._pool is not None
        try:
            mail = render(message, self._sender)
        except InvalidAddressError as error:
            return Rejected("invalid_recipient", str(error), scope=Scope.RECIPIENT)
        progress = Progress()
        try:
            async with asyncio.timeout(self.deadline_seconds):
                return await self._deliver(self._pool, mail, progress)
        except (_RefusedError, aiosmtplib.SMTPResponseException) as error:
            return _of_reply(progress.phase, *error.args[:2])
        except ServerUnfitError as error:
            return Misconfigured(error.code, str(error), error.scope)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            return _of_interruption(progress.phase, error)

    async def _deliver(self, pool: ConnectionPool, mail: Mail, progress: Progress) -> Outcome:
        connection = await pool.acquire(progress)
        keep = False
        try:
            if mail.needs_utf8 and not connection.client.supports_extension("smtputf8"):
                keep = True
                reason = "the server cannot carry this address (no SMTPUTF8)"
                return Rejected("smtputf8_unsupported", reason, scope=Scope.RECIPIENT)
            try:
                await _begin(connection, mail, progress)
            except (aiosmtplib.SMTPServerDisconnected, _RefusedError) as error:
                if not connection.is_reused or (isinstance(error, _RefusedError) and error.code != CODE_CLOSING):
                    raise
                # The server closed it while it was idle. No message was offered on it, so this is no second try.
                connection.client.close()
                connection = await pool.open(progress)
                await _begin(connection, mail, progress)
            said = await _hand_over(connection, mail, progress)
            keep = True
            return Accepted(_queue_id(said))
        except _RefusedError as refusal:
            connection.is_dirty = True
            keep = refusal.code != CODE_CLOSING
            raise
        finally:
            pool.release(connection, keep=keep)


async def _begin(connection: Connection, mail: Mail, progress: Progress) -> None:
    progress.phase = Phase.SENDER
    options = (b"SMTPUTF8",) if mail.needs_utf8 else ()
    await _step(connection, b"MAIL", b"FROM:<%b>" % mail.sender.encode("ascii"), *options)


async def _hand_over(connection: Connection, mail: Mail, progress: Progress) -> str:
    progress.phase = Phase.RECIPIENT
    await _step(connection, b"RCPT", b"TO:<%b>" % mail.recipient.encode())
    progress.phase = Phase.DATA
    await _step(connection, b"DATA", success=CODE_GO_ON)
    progress.phase = Phase.BODY
    code, text = await connection.body(mail.content)
    if code // 100 != 2:  # noqa: PLR2004  the family of success
        raise _RefusedError(code, text)
    return text


async def _step(connection: Connection, *parts: bytes, success: int = 0) -> None:
    code, text = await connection.command(*parts)
    if code != success and (success or code // 100 != 2):  # noqa: PLR2004  the family of success
        raise _RefusedError(code, text)


def _of_reply(phase: Phase, code: int, text: str) -> Outcome:
    reason = f"SMTP {code} at {phase}: {one_line(text, REASON_CHARACTERS)}"
    return verdict_of(phase, code, text).outcome(reason, parse_wait(text))


def _of_interruption(phase: Phase, error: Exception) -> Outcome:
    is_timeout = isinstance(error, TimeoutError)
    reason = f"{type(error).__name__} at {phase}: {one_line(str(error), REASON_CHARACTERS)}"
    if phase is Phase.BODY:
        return Unknown("timeout" if is_timeout else "connection_lost", reason)
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Misconfigured("tls_certificate", reason, Scope.PROVIDER)
    if phase is Phase.POOL:
        return Retry("pool_timeout", reason)
    if phase is Phase.CONNECT:
        code = "dns_error" if isinstance(cause, socket.gaierror) else "connect_refused"
        return Retry("connect_timeout" if is_timeout else code, reason, refused_connection=True)
    return Retry("timeout" if is_timeout else "connection_lost", reason)


def _queue_id(text: str) -> str | None:
    """Return the id under which the server says that it queued the mail, or None."""
    found = _QUEUED.search(text)
    return found[1][:255] if found else None
