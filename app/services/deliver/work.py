"""What a lane carries: an id that is parked, and one rendered delivery on its way to the provider."""

from dataclasses import dataclass
from math import inf

from app.domain.kinds import Channel, Priority
from providers.base import Message
from providers.outcome import Outcome


@dataclass(slots=True)
class Parked:
    """An id that a message brought. `attempt` ties a countdown to the attempts its row had; None: any."""

    id: str
    parked_at: float
    attempt: int | None = None
    is_suspect: bool = False


@dataclass(slots=True, eq=False)
class Work:
    """One delivery between load and record, told apart by identity. Instants are monotonic seconds.

    From `quiet_at` on no call of it may start: quiet hours begin then.
    """

    id: str
    attempts: int
    allowed: int
    message: Message
    parked_at: float
    due_at: float
    is_probe: bool = False
    token: int = 0
    fence_until: float = 0.0
    expires_at: float | None = None
    has_fallback: bool = False
    is_ordered: bool = False
    started: float = 0.0
    tenant_id: str = ""
    quiet_at: float = inf
    inbox: tuple[str, str] | None = None
    """Whose inbox it comes into, (tenant, user), when it is an in-app delivery."""


@dataclass(slots=True)
class Finished:
    """A call that ended, whatever came of it."""

    work: Work
    outcome: Outcome
    ended: float


@dataclass(frozen=True, slots=True)
class LaneKey:
    """The way of one priority and channel through a worker."""

    priority: Priority
    channel: Channel

    def __str__(self) -> str:
        return f"{self.priority.name.lower()}-{self.channel.value.lower()}"
