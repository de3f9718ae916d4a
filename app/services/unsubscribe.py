"""One-click unsubscribe (RFC 8058): links that carry all they need, and what a click does.

A link is stored nowhere. It carries tenant, user and category, encrypted and authenticated in one (AES-SIV,
RFC 5297): nobody can make one up, nobody can read who it is for, and the same person and category always have the
same one. It has no end, since a mail may be read years later and the worst that a stolen one does is to stop mail.
A click writes the person's own choice for that one category; whoever has no record here has choices all the same.
"""

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from app.db import preferences
from app.db.requests import RequestPool
from app.domain.kinds import Channel
from app.observability.logging import get_logger
from app.services.refusal import NotFound

_FORM = [b"arauto unsubscribe 1"]
_LENGTH_LIMIT = 4096
_PARTS = 3
_REMEMBERED = 4096
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a link stops what for: e-mails of one category to one user."""

    tenant_id: str
    user_id: str
    category: str


class UnsubscribeLinks:
    """Makes and reads links. The first of the secrets makes them, all of them read."""

    def __init__(self, base_url: str, secrets: Sequence[str]) -> None:
        self._base_url = base_url.rstrip("/")
        self._ciphers = [AESSIV(hmac.digest(secret.encode(), _FORM[0], hashlib.sha512)) for secret in secrets]
        self.url = lru_cache(maxsize=_REMEMBERED)(self._url)

    def _url(self, tenant_id: str, user_id: str, category: str) -> str | None:
        """Return the link to put into a mail, or None where no public address is known."""
        if not self._base_url:
            return None
        plain = orjson.dumps([tenant_id, user_id, category])
        token = urlsafe_b64encode(self._ciphers[0].encrypt(plain, _FORM)).rstrip(b"=").decode()
        return f"{self._base_url}/v1/unsubscribe/{token}"

    def read(self, token: str) -> Subject:
        """Return what a token of ours is about; raise NotFound for any other text."""
        sealed = _decoded(token)
        for cipher in self._ciphers:
            try:
                parts = orjson.loads(cipher.decrypt(sealed, _FORM))
            except (InvalidTag, ValueError):
                continue
            if isinstance(parts, list) and len(parts) == _PARTS:
                return Subject(*map(str, parts))
        raise _unknown()


class Unsubscribe:
    """The use case of a click."""

    def __init__(self, pool: RequestPool, links: UnsubscribeLinks) -> None:
        self._pool = pool
        self._links = links

    def look(self, token: str) -> Subject:
        """Return what a click would stop; changes nothing. Raises NotFound."""
        return self._links.read(token)

    def __call__(self, token: str) -> Subject:
        """Stop e-mails of the link's category to its user; again is harmless. Raises NotFound.

        The wish is stored for a mandatory category too: it counts from the day on which that is none any more.
        """
        subject = self._links.read(token)
        is_new = self._pool.run(
            lambda cursor: preferences.switch_off(
                cursor, subject.tenant_id, subject.user_id, subject.category, Channel.EMAIL
            )
        )
        if is_new:
            _log.info("unsubscribed", tenant_id=subject.tenant_id, category=subject.category)
        return subject


def _decoded(token: str) -> bytes:
    try:
        sealed = urlsafe_b64decode(token[:_LENGTH_LIMIT].encode("ascii") + b"=" * (-len(token) % 4))
    except (ValueError, binascii.Error) as error:
        raise _unknown() from error
    # Decoders pass over letters that they do not know, so what was read must also be what would be written.
    if urlsafe_b64encode(sealed).rstrip(b"=").decode() != token:
        raise _unknown()
    return sealed


def _unknown() -> NotFound:
    return NotFound("DOMAIN_UNSUBSCRIBE_LINK_UNKNOWN", "This is no unsubscribe link of ours.")
