"""What a provider call came to, as values: the service matches them exhaustively in one place.

An adapter never raises for anything that a provider or a network does: an exception out of an adapter is a bug.
"""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What an outcome is about: what to slow, stop or blame."""

    MESSAGE = "message"
    RECIPIENT = "recipient"
    DOMAIN = "domain"
    SENDER = "sender"
    ACCOUNT = "account"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider took the message. `is_final` when nothing later can say more (in-app: stored is delivered)."""

    message_id: str | None
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """The provider surely did not take it, and may later. `refused_connection`: no connection could be made."""

    code: str
    reason: str
    retry_after_seconds: float | None = None
    scope: Scope = Scope.PROVIDER
    refused_connection: bool = False


@dataclass(frozen=True, slots=True)
class Throttled:
    """The provider asks to slow down: the call counts as an attempt, but uses up no attempt of the budget."""

    code: str
    reason: str
    retry_after_seconds: float | None = None
    scope: Scope = Scope.ACCOUNT


@dataclass(frozen=True, slots=True)
class Rejected:
    """The provider will never take this message. `recipient_gone`: the address is dead for every message."""

    code: str
    reason: str
    recipient_gone: bool = False
    scope: Scope = Scope.MESSAGE


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """Our credentials or sender are wrong: nobody's message can go until an operator acts."""

    code: str
    reason: str
    scope: Scope = Scope.ACCOUNT


@dataclass(frozen=True, slots=True)
class Unknown:
    """The message may have been taken without our knowing: neither failed nor to be blindly sent again."""

    code: str
    reason: str
    scope: Scope = Scope.PROVIDER


Outcome = Accepted | Retry | Throttled | Rejected | Misconfigured | Unknown
