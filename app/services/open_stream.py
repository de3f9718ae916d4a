"""Opening a stream: who may follow whose inbox, and how long that may be relied on.

A request is over before anything about its caller changes; a stream is not. So the proof is taken apart here:
what must be looked at again and when, and when the stream has to end whatever the look says. A token of our own
needs no second look, only its end. One of an issuer's is looked at as often as its key may be relied on, an API
key every `check_seconds`, by all its streams together.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.domain.callers import Caller, Proven, Role
from app.services.refusal import Forbidden, Problem, Refused
from app.services.sign_in import SignIn
from app.services.stream_tickets import StreamTickets

SCOPE = "notifications:read"


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """What was shown and can be looked at again: an Authorization header, or the prefix of an API key.

    Streams with equal credentials share each look.
    """

    header: str | None = None
    key_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """One stream that may be opened. Instants are seconds since the epoch.

    `credential` is looked at again at `check_at`; None where nothing can change before `ends_at`.
    """

    tenant_id: str
    user_id: str
    credential: Credential | None
    check_at: float
    ends_at: float | None


class OpenStream:
    """The use case. It may wait for a database or an issuer, so an event loop calls it in a thread."""

    def __init__(
        self,
        sign_in: SignIn,
        key_again: Callable[[str], Proven],
        tickets: StreamTickets,
        *,
        check_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sign_in = sign_in
        self._key_again = key_again
        self._tickets = tickets
        self._check_seconds = check_seconds
        self._clock = clock

    def admit(self, header: str | None, user_id: str | None) -> Admission:
        """Return whom the sender of `header` follows; raise Unauthenticated, Refused, or what says "not now"."""
        proven = self._sign_in.proven(header)
        if not proven.caller.has(SCOPE):
            raise Forbidden("AUTH_SCOPE_MISSING", f"The caller lacks the scope {SCOPE}.")
        credential = Credential(header=header) if self._may_change(proven) else None
        return Admission(
            proven.caller.tenant_id,
            reader_of(proven.caller, user_id),
            credential,
            self._next_look(proven),
            proven.expires_at,
        )

    def admit_ticket(self, ticket: str) -> Admission:
        """Return whom the bearer of a ticket follows; raise Unauthenticated, or what says "not now"."""
        grant = self._tickets.read(ticket)
        if grant.key_prefix is None:
            return Admission(grant.tenant_id, grant.user_id, None, 0.0, grant.ends_at)
        proven = self._key_again(grant.key_prefix)
        credential = Credential(key_prefix=grant.key_prefix)
        return Admission(grant.tenant_id, grant.user_id, credential, self._next_look(proven), None)

    def look_again(self, credential: Credential) -> float:
        """Return when to look once more; raise Unauthenticated when it has ended, or what says "not now"."""
        if credential.key_prefix is not None:
            return self._next_look(self._key_again(credential.key_prefix))
        return self._next_look(self._sign_in.proven(credential.header))

    def _may_change(self, proven: Proven) -> bool:
        return proven.expires_at is None or proven.until < proven.expires_at

    def _next_look(self, proven: Proven) -> float:
        # A key counts for some seconds only, which is for requests: at that pace streams would ask all the time.
        return proven.until if proven.key_id is None else self._clock() + self._check_seconds


def reader_of(caller: Caller, user_id: str | None) -> str:
    """Return whose inbox the caller asks for: a person's own, or that of the user whom a service names.

    Raise Forbidden for a person who names another, Refused for a service that names nobody.
    """
    if caller.role is Role.USER:
        if user_id not in {None, caller.subject}:
            raise Forbidden("AUTH_USER_MISMATCH", "A token of the role USER acts for its own subject only.")
        return caller.subject
    if user_id is None:
        problem = Problem("user_id", "is required, unless the caller has the role USER")
        raise Refused("DOMAIN_USER_NOT_NAMED", "Say whose inbox it is.", [problem])
    return user_id
