"""Sign-in: from the `Authorization` header of a request to a proven caller.

A proof is remembered for as long as it may be relied on, so that the next request of the same caller costs a
look-up in a dictionary: a signature takes 30 µs to check, and a key a round trip to the database.
"""

import time
from collections.abc import Callable

from app.domain.api_keys import MARK
from app.domain.callers import Caller, Proven
from app.services.refusal import Unauthenticated

_REMEMBERED = 1024


class SignIn:
    """The use case. `note_use` is told of every request that comes with an API key, and must not block."""

    def __init__(
        self,
        verify_token: Callable[[str], Proven],
        verify_key: Callable[[str], Proven],
        note_use: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._verify_token = verify_token
        self._verify_key = verify_key
        self._note_use = note_use
        self._clock = clock
        self._known: dict[str, Proven] = {}

    def caller(self, header: str | None) -> Caller:
        """Return who sent the header; raise Unauthenticated, or Unavailable when that cannot be told now."""
        return self.proven(header).caller

    def proven(self, header: str | None) -> Proven:
        """Return the same with how long it may be relied on, for what lasts longer than a request."""
        kind, _, credential = (header or "").partition(" ")
        if kind.lower() != "bearer" or not credential:
            raise Unauthenticated(
                "AUTH_TOKEN_MISSING", "Send a bearer token or an API key in the Authorization header."
            )
        known = self._known.get(credential)
        if known is None or known.until <= self._clock():
            known = self._prove(credential)
        if known.key_id is not None:
            self._note_use(known.key_id)
        return known

    def _prove(self, credential: str) -> Proven:
        self._known.pop(credential, None)
        verify = self._verify_key if credential.startswith(MARK) else self._verify_token
        proven = verify(credential)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[credential] = proven
        return proven
