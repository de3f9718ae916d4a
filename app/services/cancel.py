"""Cancel: what has not begun is called off, what has begun is asked to end.

A delivery that a worker holds cannot be taken from it: a call may be on its way. The request is written down, and
the worker honours it if the call turns out not to have been accepted.
"""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from app.db import notifications
from app.db.requests import RequestPool
from app.domain.callers import Caller
from app.domain.states import OPEN, DeliveryState
from app.domain.summary import NotificationStatus, summarise
from app.observability import metrics
from app.services.audit import audited
from app.services.refusal import NotFound


class CancelResult(StrEnum):
    """What a request to cancel found, per delivery."""

    CANCELLED = "cancelled"
    BEING_SENT = "being sent"
    ENDED = "already ended"


@dataclass(frozen=True, slots=True)
class CancelledDelivery:
    """One delivery after the request."""

    id: str
    channel: str
    status: DeliveryState
    result: CancelResult


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The notification after the request."""

    id: str
    status: NotificationStatus
    deliveries: tuple[CancelledDelivery, ...]


class Cancel:
    """The use case; repeating it changes nothing more."""

    def __init__(self, pool: RequestPool) -> None:
        self._pool = pool

    def __call__(self, caller: Caller, identifier: UUID) -> Cancelled:
        """Cancel a notification of the caller's tenant, or of the one user that the caller is; raise NotFound."""
        entry = audited(caller, "notification.cancelled", "notification", str(identifier))
        rows = self._pool.run(
            lambda cursor: notifications.cancel(cursor, caller.tenant_id, identifier, caller.only_user, entry)
        )
        if not rows:
            raise NotFound("DOMAIN_NOTIFICATION_NOT_FOUND", "There is no such notification.")
        deliveries = tuple(_outcome(row.id, row) for row in rows if row.id is not None)
        metrics.CANCELLED.inc(sum(row.is_cancelled for row in rows))
        return Cancelled(str(identifier), summarise([each.status for each in deliveries]), deliveries)


def _outcome(identifier: str, row: notifications.Found) -> CancelledDelivery:
    status = DeliveryState.CANCELLED if row.is_cancelled else DeliveryState(row.status)
    if status is DeliveryState.CANCELLED:
        result = CancelResult.CANCELLED
    else:
        result = CancelResult.BEING_SENT if status in OPEN else CancelResult.ENDED
    return CancelledDelivery(identifier, row.channel, status, result)
