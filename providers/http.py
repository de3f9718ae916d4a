"""The shared HTTP part of an adapter: one pooled session, strict timeouts, and every ending as an outcome.

What decides between Retry and Unknown is whether the request may have reached the provider. No connection:
surely not, so Retry. From the moment that the request was handed to a connection: perhaps, so Unknown. There
is no retry here, and none in aiohttp for a POST. Redirects are not followed: they would carry the content and
the token to an address that nobody configured.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson
from yarl import URL

from providers.http_status import verdict_of
from providers.outcome import Accepted, Misconfigured, Outcome, Retry, Scope, Unknown
from providers.retry_after import parse_retry_after
from providers.texts import encodable
from providers.verdict import Meaning

CONNECT_TIMEOUT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 4.0
"""Shorter than any usual server's: a connection that the server closes in the same instant as we use it
makes an Unknown out of nothing."""
MAX_ANSWER_BYTES = 65_536
REASON_CHARACTERS = 200

_NEVER_CONNECTED: tuple[tuple[type[aiohttp.ClientError], str], ...] = (
    (aiohttp.ClientConnectorSSLError, "tls_handshake"),
    (aiohttp.ClientConnectorDNSError, "dns_error"),
    (aiohttp.ConnectionTimeoutError, "connect_timeout"),
    (aiohttp.ClientConnectorError, "connect_refused"),
)


class HttpClient:
    """Posts JSON to one URL. Built anywhere; opened and used in one event loop."""

    def __init__(self, url: str, token: str = "", timeout_seconds: float = 20.0) -> None:
        self.deadline_seconds = timeout_seconds
        self._url = URL(url, encoded=True)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "arauto"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        connect = min(CONNECT_TIMEOUT_SECONDS, timeout_seconds / 2)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=connect, connect=connect)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the session. No connection is made yet."""
        if self._session is None:
            # The worker's window bounds the calls in flight, so the pool itself need not.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept-Encoding",),
                auto_decompress=False,
                raise_for_status=False,
            )

    async def close(self) -> None:
        """Close the session and its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, fields: dict[str, Any], reference: str) -> Outcome:
        """Post one message and say what came of it. Raises nothing but CancelledError."""
        if self._session is None:
            await self.start()
        assert self._session is not None
        try:
            async with self._session.post(
                self._url,
                data=to_json(fields),
                headers={"Idempotency-Key": reference},
                allow_redirects=False,
            ) as answer:
                return await self._read(answer)
        except aiohttp.ClientError as error:
            return _of_client_error(error)
        except TimeoutError:
            # The connection has a shorter limit of its own, so it stood: the request was written.
            return Unknown("timeout", f"no answer within {self.deadline_seconds:g} s")
        except (OSError, asyncio.IncompleteReadError) as error:
            return Unknown("connection_lost", _short(error))

    async def _read(self, answer: aiohttp.ClientResponse) -> Outcome:
        """Read what is needed of the body. The status stands, even when the body never comes."""
        try:
            raw = await _bounded(answer)
        except (aiohttp.ClientError, TimeoutError, OSError):
            raw = b""
        return outcome_of(answer.status, answer.headers, raw)


def to_json(fields: dict[str, Any]) -> bytes:
    """Return the fields as JSON; a text that UTF-8 cannot carry is repaired instead of failing every try."""
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError:
        return orjson.dumps(_repaired(fields))


def outcome_of(status: int, headers: Mapping[str, str], raw: bytes) -> Outcome:
    """Return what an answer means. `raw` is its body, perhaps cut or empty."""
    body = _object(raw)
    error = body.get("error")
    details = error if isinstance(error, dict) else {}
    verdict = verdict_of(status, str(details.get("code", "")))
    if verdict.meaning is Meaning.ACCEPTED:
        given = body.get("id") or body.get("message_id")
        return Accepted(str(given)[:255] if given else None)
    reason = f"HTTP {status} {details.get('message') or ''}".strip()[:REASON_CHARACTERS]
    wait = parse_retry_after(headers.get("Retry-After"))
    return verdict.outcome(encodable(reason), wait, _scope(details.get("scope")))


def _of_client_error(error: aiohttp.ClientError) -> Outcome:
    reason = _short(error)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Misconfigured("tls_certificate", reason, Scope.PROVIDER)
    if isinstance(error, aiohttp.InvalidURL):
        return Misconfigured("wrong_address", reason, Scope.ACCOUNT)
    for kind, code in _NEVER_CONNECTED:
        if isinstance(error, kind):
            return Retry(code, reason, refused_connection=True)
    return Unknown("timeout" if isinstance(error, TimeoutError) else "connection_lost", reason)


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    """Read the body up to MAX_ANSWER_BYTES; a longer one is cut, and its connection is not used again."""
    length = answer.content_length
    if length is not None and length <= MAX_ANSWER_BYTES:
        return await answer.read()
    parts, size = [], 0
    while size < MAX_ANSWER_BYTES and (part := await answer.content.readany()):
        parts.append(part)
        size += len(part)
    if size >= MAX_ANSWER_BYTES:
        answer.close()
    return b"".join(parts)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def _scope(said: object) -> Scope | None:
    try:
        return Scope(said) if isinstance(said, str) else None
    except ValueError:
        return None


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(key): _repaired(inner) for key, inner in value.items()}
    return value


def _short(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else error
    return f"{type(error).__name__}: {cause}"[:REASON_CHARACTERS]
