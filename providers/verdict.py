"""What an answer of a provider means, as data, and the one way from there to an outcome."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from providers.outcome import Accepted, Misconfigured, Outcome, Rejected, Retry, Scope, Throttled, Unknown


class Meaning(StrEnum):
    """Which outcome an answer becomes."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    THROTTLED = "throttled"
    REJECTED = "rejected"
    GONE = "gone"
    MISCONFIGURED = "misconfigured"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome's kind, its code for the attempt row, and what it is about."""

    meaning: Meaning
    code: str
    scope: Scope

    def outcome(self, reason: str, wait_seconds: float | None = None, scope: Scope | None = None) -> Outcome:
        """Return the outcome; `scope` is what the answer itself said that it is about, if it did."""
        about = scope or self.scope
        match self.meaning:
            case Meaning.ACCEPTED:
                return Accepted(None)
            case Meaning.RETRY:
                return Retry(self.code, reason, wait_seconds, about)
            case Meaning.THROTTLED:
                return Throttled(self.code, reason, wait_seconds, about)
            case Meaning.REJECTED | Meaning.GONE:
                return Rejected(self.code, reason, self.meaning is Meaning.GONE, about)
            case Meaning.MISCONFIGURED:
                return Misconfigured(self.code, reason, about)
            case Meaning.UNKNOWN:
                return Unknown(self.code, reason, about)
            case _:
                assert_never(self.meaning)
