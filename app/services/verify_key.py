"""Proving a caller by an API key, against its digest in the database.

A key that was found good counts for a few seconds without another look, which is also how long a revoked one may
go on. What is no key by its form costs no look at all, and one that was refused is refused again for the same few
seconds without one. Whoever makes up keys of the right form costs one look-up by a unique index each.
"""

import hmac
import time
from collections.abc import Callable

from app.db import api_keys
from app.db.requests import RequestPool
from app.domain.api_keys import digest, prefix_of
from app.domain.callers import Caller, Proven
from app.services.refusal import Unauthenticated

_REMEMBERED = 4096


class VerifyKey:
    """The use case. `trusted_seconds` is how long a look into the table counts."""

    def __init__(
        self, pool: RequestPool, *, trusted_seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._pool = pool
        self._trusted_seconds = trusted_seconds
        self._clock = clock
        self._refused: dict[bytes, tuple[float, Unauthenticated]] = {}

    def __call__(self, text: str) -> Proven:
        """Return who the key stands for; raise Unauthenticated, or what the pool raises."""
        prefix = prefix_of(text)
        if prefix is None:
            raise _unknown()
        found = digest(text)
        refused = self._refused.get(found)
        if refused is not None and self._clock() < refused[0]:
            raise _again(refused[1])
        try:
            return self._look_up(prefix, found)
        except Unauthenticated as error:
            if len(self._refused) >= _REMEMBERED:
                self._refused.clear()
            self._refused[found] = (self._clock() + self._trusted_seconds, error)
            raise

    def again(self, prefix: str) -> Proven:
        """Return the same for a key that was shown before, and is now known by its prefix alone."""
        return self._look_up(prefix, None)

    def _look_up(self, prefix: str, found: bytes | None) -> Proven:
        key = self._pool.run(lambda cursor: api_keys.look_up(cursor, prefix))
        # Whose digest differs has guessed a prefix at best, and learns nothing else about that key.
        if key is None:
            raise _unknown()
        if found is not None and not hmac.compare_digest(key.digest, found):
            raise _unknown(key.tenant_id, prefix)
        if key.is_revoked:
            raise Unauthenticated("AUTH_KEY_REVOKED", "The API key was revoked.", key.tenant_id, prefix)
        left = self._trusted_seconds if key.seconds_left is None else key.seconds_left
        if left <= 0:
            raise Unauthenticated("AUTH_KEY_EXPIRED", "The API key is out of date.", key.tenant_id, prefix)
        caller = Caller(prefix, key.tenant_id, frozenset(key.scopes), key_id=key.id)
        return Proven(caller, self._clock() + min(left, self._trusted_seconds), key.id)


def _unknown(tenant_id: str = "", prefix: str = "") -> Unauthenticated:
    return Unauthenticated("AUTH_KEY_INVALID", "There is no such API key.", tenant_id, prefix)


def _again(earlier: Unauthenticated) -> Unauthenticated:
    """Return the same refusal without the traceback of the earlier one, which would grow with each raise."""
    return Unauthenticated(earlier.code, earlier.message, earlier.tenant_id, earlier.subject)
