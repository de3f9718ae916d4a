"""Tickets: what a browser shows to open a stream, since `EventSource` cannot send an Authorization header.

A ticket is good for one thing, following one user's inbox, and for a minute. It may stand in a URL, and so in the
log of a proxy, where a token or a key must not. It carries until when the token that it was made with is good, or
the prefix of the API key, so that a stream does not outlive what it was opened with. The key that signs tickets is
derived for them alone: no cursor and no token is a ticket.
"""

import binascii
import hashlib
import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass

import orjson

from app.domain.callers import Proven
from app.services.refusal import Unauthenticated

TICKET_SECONDS = 60

_SIGNATURE_BYTES = 32
_LENGTH_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Grant:
    """What a ticket allows: the inbox of one user. Instants are seconds since the epoch.

    `key_prefix` names the API key that it was made with, if it was one, and `ends_at` is when the token ends.
    """

    tenant_id: str
    user_id: str
    ends_at: float | None
    key_prefix: str | None


class StreamTickets:
    """Makes and reads tickets under one secret, from which a key of their own is derived."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret.encode(), b"arauto stream ticket", hashlib.sha256)
        self._clock = clock

    def make(self, proven: Proven, user_id: str) -> str:
        """Return a ticket for the inbox of `user_id`, whom the caller may read."""
        caller = proven.caller
        grant = Grant(
            caller.tenant_id, user_id, proven.expires_at, caller.subject if proven.key_id is not None else None
        )
        content = orjson.dumps([self._clock() + TICKET_SECONDS, *asdict(grant).values()])
        return _text(self._sign(content) + content)

    def read(self, ticket: str) -> Grant:
        """Return what a ticket of ours allows; raise Unauthenticated for any other text or an old one."""
        try:
            raw = b"" if len(ticket) > _LENGTH_LIMIT else urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))
        except (binascii.Error, ValueError) as error:
            raise _invalid() from error
        signature, content = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        # Decoders pass over letters that they do not know, so what was read must also be what would be written.
        if not hmac.compare_digest(signature, self._sign(content)) or _text(raw) != ticket:
            raise _invalid()
        good_until, *granted = orjson.loads(content)
        if good_until <= self._clock():
            raise Unauthenticated("AUTH_TICKET_EXPIRED", "The ticket is out of date; get another one.")
        return Grant(*granted)

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, hashlib.sha256)


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _invalid() -> Unauthenticated:
    return Unauthenticated("AUTH_TICKET_INVALID", "The ticket is not one of ours.")
