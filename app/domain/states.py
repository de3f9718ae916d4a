"""The state machine of a delivery: one table, enforced here, in every UPDATE and by CHECK constraints.

Each verb names one edge or one family of edges and the party that may take it. SQL that changes a status names
the `source` states of its verb in its WHERE clause; a test compares both.
"""

from dataclasses import dataclass
from enum import StrEnum


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "PENDING"
    """Waits in the table until `relay_at`. The relay moves it on; a relay that dies rolls back to here."""
    QUEUED = "QUEUED"
    """In the pipe: Kafka, the bridge or a Celery list carries its id. A worker claims it; if the message is lost
    anywhere, a later marker that came through the pipe proves it, and rescue puts the row back to PENDING."""
    SENDING = "SENDING"
    """Claimed by one worker under a lease: a provider call may have begun. The worker records the outcome; if it
    dies, rescue makes the row UNKNOWN when the lease is over."""
    SENT = "SENT"
    """The provider accepted it. A receipt moves it on; without one it stays."""
    DELIVERED = "DELIVERED"
    """A receipt says that it arrived, or it was stored in the in-app inbox. Final."""
    FAILED = "FAILED"
    """It will not be sent: rejected, attempts used up, uncertain under `hold`, or undeliverable. An operator may
    replay it; a late positive receipt may prove it wrong when a call of it was uncertain."""
    UNKNOWN = "UNKNOWN"
    """A call may have been accepted without our knowing. The resolver decides when its window is over; a receipt
    or a late answer of that call decides earlier."""
    CANCELLED = "CANCELLED"
    """Called off before a call began. Final, but for a positive receipt of an uncertain call."""
    EXPIRED = "EXPIRED"
    """Its deadline passed before a call began. Final, but for a positive receipt of an uncertain call."""


_S = DeliveryState

TERMINAL = frozenset({_S.SENT, _S.DELIVERED, _S.FAILED, _S.CANCELLED, _S.EXPIRED})
OPEN = frozenset(_S) - TERMINAL


@dataclass(frozen=True, slots=True)
class Verb:
    """One named way from any of `source` to any of `target`, taken by `actor`."""

    source: frozenset[DeliveryState]
    target: frozenset[DeliveryState]
    actor: str

    def allows(self, source: DeliveryState, target: DeliveryState) -> bool:
        """Tell whether this verb may move a row from `source` to `target`."""
        return source in self.source and target in self.target


def _verb(source: set[DeliveryState], target: set[DeliveryState], actor: str) -> Verb:
    return Verb(frozenset(source), frozenset(target), actor)


TRANSITIONS: dict[str, Verb] = {
    "publish": _verb({_S.PENDING}, {_S.QUEUED}, "relay"),
    "claim": _verb({_S.PENDING, _S.QUEUED}, {_S.SENDING}, "worker"),
    "defer": _verb({_S.PENDING, _S.QUEUED}, {_S.PENDING}, "worker"),
    "rescue_queued": _verb({_S.QUEUED}, {_S.PENDING, _S.FAILED}, "rescue"),
    "reject_unrenderable": _verb({_S.PENDING, _S.QUEUED}, {_S.FAILED}, "worker"),
    "mark_sent": _verb({_S.SENDING, _S.UNKNOWN}, {_S.SENT, _S.DELIVERED}, "worker"),
    "retry": _verb({_S.SENDING, _S.UNKNOWN}, {_S.PENDING, _S.FAILED, _S.CANCELLED, _S.EXPIRED}, "worker"),
    "give_back": _verb({_S.SENDING}, {_S.PENDING, _S.CANCELLED, _S.EXPIRED, _S.DELIVERED}, "worker"),
    "reject": _verb({_S.SENDING, _S.UNKNOWN}, {_S.FAILED, _S.DELIVERED}, "worker"),
    "mark_unknown": _verb({_S.SENDING}, {_S.UNKNOWN, _S.DELIVERED, _S.FAILED}, "worker"),
    "rescue_sending": _verb({_S.SENDING}, {_S.UNKNOWN, _S.DELIVERED, _S.FAILED}, "rescue"),
    "resolve_resend": _verb({_S.UNKNOWN}, {_S.PENDING}, "resolver"),
    "resolve_hold": _verb({_S.UNKNOWN}, {_S.FAILED}, "resolver"),
    "cancel": _verb({_S.PENDING, _S.QUEUED}, {_S.CANCELLED}, "user"),
    "supersede": _verb({_S.PENDING, _S.QUEUED}, {_S.CANCELLED}, "user"),
    "withhold": _verb({_S.PENDING, _S.QUEUED}, {_S.CANCELLED}, "worker"),
    "expire": _verb({_S.PENDING, _S.QUEUED}, {_S.EXPIRED}, "sweeper"),
    "receipt_positive": _verb(
        {_S.PENDING, _S.QUEUED, _S.UNKNOWN, _S.SENT, _S.FAILED, _S.CANCELLED, _S.EXPIRED},
        {_S.DELIVERED},
        "receipt",
    ),
    "receipt_negative": _verb({_S.UNKNOWN, _S.SENT}, {_S.FAILED}, "receipt"),
    "replay": _verb({_S.FAILED}, {_S.PENDING}, "operator"),
}


def edges() -> frozenset[tuple[DeliveryState, DeliveryState]]:
    """Return every edge of the machine that changes the state."""
    return frozenset(
        (source, target)
        for verb in TRANSITIONS.values()
        for source in verb.source
        for target in verb.target
        if source != target
    )
