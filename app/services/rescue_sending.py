"""Rescue of SENDING: rows whose worker died, or lost its lease, during the call.

Nobody knows whether that call was accepted, so the row is never simply sent again: it becomes UNKNOWN, its call is
counted with an attempt row `worker_lost`, and a receipt that came meanwhile is folded in.
"""

from sqlalchemy.engine import Engine

from app.db import recovery
from app.observability import metrics
from app.observability.logging import get_logger

log = get_logger(__name__)

BATCH = 500


class RescueSending:
    """Takes rows from dead workers."""

    def __init__(
        self, engine: Engine, window_high_seconds: float, window_seconds: float, lease_seconds: float
    ) -> None:
        self._engine = engine
        self._window_high_seconds = window_high_seconds
        self._window_seconds = window_seconds
        self._lease_seconds = lease_seconds

    def run_once(self) -> int:
        """Rescue what is due now, batch by batch; return how many rows."""
        total = 0
        while True:
            with self._engine.begin() as connection:
                rescued = recovery.rescue_sending(
                    connection, BATCH, self._window_high_seconds, self._window_seconds, self._lease_seconds
                )
            total += len(rescued)
            if rescued:
                metrics.RESCUED.labels("SENDING").inc(len(rescued))
                log.warning(
                    "workers_lost_calls", count=len(rescued), delivery_ids=[row[0] for row in rescued[:20]]
                )
            if len(rescued) < BATCH:
                return total
