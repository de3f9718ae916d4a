"""Receipts: what a provider says later about a delivery, by our reference.

A receipt never moves a row backwards, may come before the answer of the call itself (the row then keeps it until
the worker records), and may come twice.
"""

from dataclasses import dataclass

from sqlalchemy.engine import Engine

from app.db import recovery
from app.domain.states import DeliveryState
from app.observability import metrics
from app.observability.logging import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One statement of a provider about one of its messages. `code` and `detail` say why it was not delivered."""

    delivery_id: str
    is_positive: bool
    message_id: str | None = None
    code: str | None = None
    detail: str | None = None


class TakeReceipt:
    """Applies receipts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, receipt: Receipt) -> DeliveryState | None:
        """Apply one receipt; return the state of its row afterwards, or None when it changed nothing."""
        with self._engine.begin() as connection:
            status = recovery.receipt(
                connection,
                receipt.delivery_id,
                is_positive=receipt.is_positive,
                message_id=receipt.message_id,
                code=receipt.code,
                detail=receipt.detail,
            )
        result = "ignored" if status is None else "early" if status == "SENDING" else "applied"
        metrics.RECEIPTS.labels(result).inc()
        log.info("receipt_taken", delivery_id=receipt.delivery_id, result=result, status=status)
        return None if status is None else DeliveryState(status)
