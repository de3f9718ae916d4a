"""The status of a notification: derived from its deliveries whenever it is asked for, never stored."""

from collections.abc import Collection
from enum import StrEnum

from app.domain.states import OPEN, DeliveryState

ENDED_WELL = frozenset({DeliveryState.SENT, DeliveryState.DELIVERED})


class NotificationStatus(StrEnum):
    """Where a notification stands as a whole."""

    ACCEPTED = "ACCEPTED"
    """No delivery has ended yet."""
    IN_PROGRESS = "IN_PROGRESS"
    """Some deliveries have ended, others have not."""
    COMPLETED = "COMPLETED"
    """All were sent or delivered."""
    PARTIAL = "PARTIAL"
    """All have ended, some of them well."""
    FAILED = "FAILED"
    """All have ended, none well, and at least one failed."""
    CANCELLED = "CANCELLED"
    """All have ended, none well, none failed, and at least one was called off."""
    EXPIRED = "EXPIRED"
    """All passed their deadline."""
    SUPPRESSED = "SUPPRESSED"
    """No delivery was made."""


def summarise(states: Collection[DeliveryState], *, goes_on: bool = False) -> NotificationStatus:
    """Return the status of a notification whose deliveries stand at `states`, one item a delivery.

    It `goes_on` when a fallback still waits: what failed or was called off so far is then not the end of it.
    """
    if not states:
        return NotificationStatus.SUPPRESSED
    still_open = sum(state in OPEN for state in states)
    if still_open:
        return NotificationStatus.ACCEPTED if still_open == len(states) else NotificationStatus.IN_PROGRESS
    ended_well = sum(state in ENDED_WELL for state in states)
    if ended_well:
        return NotificationStatus.COMPLETED if ended_well == len(states) else NotificationStatus.PARTIAL
    if DeliveryState.FAILED in states:
        ended = NotificationStatus.FAILED
    elif DeliveryState.CANCELLED in states:
        ended = NotificationStatus.CANCELLED
    else:
        return NotificationStatus.EXPIRED
    return NotificationStatus.IN_PROGRESS if goes_on else ended
