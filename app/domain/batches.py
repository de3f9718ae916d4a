"""A batch: one message to many people. Its states, who may move it on, and what became of a recipient.

A batch moves only forward through its list of recipients; whatever state it is in, what it has expanded so far is
in the tables and is sent like any other notification.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import ceil

from app.domain.states import DeliveryState


class BatchState(StrEnum):
    """Where a batch stands."""

    UPLOADING = "UPLOADING"
    """Its list comes in pieces; nothing is expanded before it is started."""
    ACCEPTED = "ACCEPTED"
    """Waits for its turn: a tenant has only so many running at a time."""
    RUNNING = "RUNNING"
    """Is expanded, a chunk at a time, by whichever expander holds the lock of its row."""
    PAUSED = "PAUSED"
    """Makes no more notifications until somebody resumes it; `reason` says who or what stopped it."""
    CANARY_WAIT = "CANARY_WAIT"
    """The first part is out; how it fares decides what comes next."""
    CANCELLING = "CANCELLING"
    """Makes no more, and nothing of it is sent any more; what has not been sent is being cancelled."""
    CANCELLED = "CANCELLED"
    """Called off. Final."""
    COMPLETED = "COMPLETED"
    """Every recipient was read. It can still be recalled."""
    FAILED = "FAILED"
    """It could not be read to its end; `reason` says why. It can still be recalled."""


_B = BatchState
ENDED = frozenset({_B.CANCELLED, _B.COMPLETED, _B.FAILED})


class Source(StrEnum):
    """Where the recipients come from."""

    RECIPIENTS = "RECIPIENTS"
    SEGMENT = "SEGMENT"
    UPLOAD = "UPLOAD"


class CanaryState(StrEnum):
    """How far the trial with the first recipients is."""

    NONE = "NONE"
    AHEAD = "AHEAD"
    WAITING = "WAITING"
    PASSED = "PASSED"
    STOPPED = "STOPPED"
    WAIVED = "WAIVED"
    """It had stopped the batch, and somebody resumed it all the same."""


class Reason(StrEnum):
    """Why a batch is PAUSED, CANCELLED or FAILED."""

    USER = "user"
    CANARY_FAILED = "canary_failed"
    CANARY_UNDECIDED = "canary_undecided"
    RECALLED = "recalled"
    DEADLINE_PASSED = "deadline_passed"
    NO_HEADER = "no_header"
    INCOMPLETE = "incomplete"
    ABANDONED = "abandoned"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Canary:
    """A trial: how many go first, how long to wait, and which share of failures stops the rest."""

    max_failure_rate: float
    wait_seconds: int
    percent: float | None = None
    count: int | None = None

    def size(self, total: int | None) -> int:
        """Return how many recipients go first of `total`, at least one. A percentage is taken exactly."""
        if self.count is not None:
            return self.count
        share = Fraction(str(self.percent)) / 100
        return max(ceil(share * (total or 0)), 1)


_S = DeliveryState
GROUPS: dict[str, tuple[DeliveryState, ...]] = {
    "sent": (_S.SENT, _S.DELIVERED),
    "failed": (_S.FAILED,),
    "cancelled": (_S.CANCELLED,),
    "expired": (_S.EXPIRED,),
    "uncertain": (_S.UNKNOWN,),
    "waiting": (_S.PENDING, _S.QUEUED, _S.SENDING),
}
"""What a person asks for, as states of deliveries. Together they are all states, none twice."""
