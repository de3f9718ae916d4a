"""The judgement of a trial: how the first part of a batch fares decides about the rest. Pure.

A failure is a delivery that ended FAILED, among those that ended at all by a provider's word. While fewer than
half of them have ended, there is nothing to judge by: the wait goes on, up to ten times as long, and then the
batch stands still, since silence is no good sign.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from app.domain.batches import Canary
from app.domain.states import DeliveryState

PATIENCE = 10
_S = DeliveryState


class Verdict(Enum):
    """What follows from a trial."""

    GO_ON = auto()
    WAIT = auto()
    FAILED = auto()
    UNDECIDED = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, and the share of failures that it rests on; None where nothing has ended."""

    verdict: Verdict
    failure_rate: float | None


def judge(canary: Canary, states: Mapping[str, int], out_for_seconds: float) -> Judgement:
    """Return what follows from how many deliveries of a trial are in which state."""
    failed = states.get(_S.FAILED, 0)
    ended = failed + states.get(_S.SENT, 0) + states.get(_S.DELIVERED, 0)
    meant = sum(states.values()) - states.get(_S.CANCELLED, 0) - states.get(_S.EXPIRED, 0)
    rate = failed / ended if ended else None
    if rate is not None and 2 * ended >= meant:
        return Judgement(Verdict.GO_ON if rate <= canary.max_failure_rate else Verdict.FAILED, rate)
    is_over = meant == 0 or out_for_seconds >= PATIENCE * canary.wait_seconds
    return Judgement(Verdict.UNDECIDED if is_over else Verdict.WAIT, rate)
