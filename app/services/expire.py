"""The sweep of deadlines: PENDING and QUEUED rows past `expires_at` become EXPIRED, set-wise."""

from sqlalchemy.engine import Engine

from app.db import recovery
from app.observability import metrics
from app.observability.logging import get_logger

log = get_logger(__name__)

BATCH = 2000


class Expire:
    """Expires rows that no worker may call for any more."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run_once(self) -> int:
        """Expire what is due now, batch by batch; return how many rows."""
        total = 0
        while True:
            with self._engine.begin() as connection:
                expired = recovery.expire(connection, BATCH)
            total += expired
            if expired:
                metrics.EXPIRED.inc(expired)
                log.info("deliveries_expired", count=expired)
            if expired < BATCH:
                return total
