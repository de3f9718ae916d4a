"""The SMTP side: a mail server that takes every message and plays the scripted recipients.

Scripted refusals come as the reply to the message's end, not to RCPT: only then is our reference known (from
the headers), by which the outbox and the counts are kept.
"""

import asyncio
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from math import isinf
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from sandbox.gateway import Gateway, Verdict

MAX_MESSAGE_BYTES = 1024 * 1024
NEVER_SECONDS = 24 * 3600.0

_REPLIES = {
    "failed": "451 4.3.0 The server cannot take this message now",
    "down": "421 4.3.2 The server is down",
    "gone": "550 5.1.1 There is no such mailbox",
    "throttled": "450 4.2.1 Too many messages to this mailbox, try again in 1 s",
    "rate_limited": "421 4.7.0 The account exceeded its rate limit, try again in 1 s",
}


class Handler:
    """The hooks that aiosmtpd calls; one for all connections."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._ids = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: ARG002, N802
        """Decide about one message and give the reply, if there is to be one."""
        content = envelope.content
        raw = content if isinstance(content, bytes) else (content or "").encode("utf-8", "replace")
        reference, subject, body = read_message(raw)
        verdict = Verdict("accepted")
        for recipient in envelope.rcpt_tos:
            verdict = self._gateway.take("email", recipient, reference, subject, body)
        if verdict.delay_seconds:
            await asyncio.sleep(min(verdict.delay_seconds, NEVER_SECONDS))
        if verdict.outcome == "dropped" or isinf(verdict.delay_seconds):
            if isinstance(server.transport, asyncio.WriteTransport):
                server.transport.abort()
            raise asyncio.CancelledError
        if verdict.outcome == "accepted":
            self._ids += 1
            return f"250 2.0.0 Taken as sb-{self._ids}"
        return _REPLIES[verdict.outcome]


def read_message(raw: bytes) -> tuple[str, str, str]:
    """Return the reference, the subject and the text of a mail; what cannot be read is left empty."""
    parsed = message_from_bytes(raw)
    reference = str(parsed.get("X-Arauto-Reference", "")).strip()
    if not reference:
        reference = str(parsed.get("Message-ID", "")).strip().removeprefix("<").partition("@")[0]
    texts = {
        part.get_content_subtype(): part
        for part in reversed(list(parsed.walk()))
        if part.get_content_maintype() == "text"
    }
    text = _text(texts.get("plain") or texts.get("html")).replace("\r\n", "\n").removesuffix("\n")
    subject = _decoded(str(parsed.get("Subject", "")))
    return _printable(reference), _printable(subject), _printable(text)


def _printable(text: str) -> str:
    """Return the text without the surrogates that stand for undecodable bytes: JSON could not carry them."""
    return text.encode("utf-8", "replace").decode()


def _decoded(header: str) -> str:
    if "=?" not in header:
        return header
    try:
        return str(make_header(decode_header(header)))
    except (HeaderParseError, LookupError, ValueError):
        return header


def _text(part: Message | None) -> str:
    if part is None:
        return ""
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes):
        return ""
    try:
        return raw.decode(part.get_content_charset("utf-8"), "replace")
    except LookupError:
        return raw.decode("utf-8", "replace")


async def listen(gateway: Gateway, host: str, port: int) -> tuple[asyncio.Server, int]:
    """Bind, and return the server with the port that was bound (asked with 0: a free one)."""
    handler = Handler(gateway)

    def connection() -> Any:
        return SMTP(
            handler,
            hostname="sandbox.example.com",
            ident="Arauto sandbox",
            data_size_limit=MAX_MESSAGE_BYTES,
            enable_SMTPUTF8=True,
            timeout=300,
        )

    server = await asyncio.get_running_loop().create_server(connection, host, port, backlog=1024)
    return server, int(server.sockets[0].getsockname()[1])
