"""Advance: the next step of a chain of fallbacks, when the one before it failed or took too long.

Runs right after a worker recorded such an end, and again with every round of upkeep: what woke a step is in the
table, so whoever dies in between, the next one finds it.
"""

from collections.abc import Callable

from sqlalchemy.engine import Engine

from app.db import fallback
from app.domain.kinds import Priority
from app.observability import metrics
from app.observability.logging import get_logger

log = get_logger(__name__)

BATCH = 500


class Advance:
    """Decides steps. `nudge` wakes the relay for the deliveries that were made."""

    def __init__(self, engine: Engine, attempts_allowed: int, nudge: Callable[[Priority], None]) -> None:
        self._engine = engine
        self._attempts_allowed = attempts_allowed
        self._nudge = nudge

    def run_once(self) -> int:
        """Decide what is woken or due now, batch by batch; return how many steps were made."""
        total = 0
        while True:
            with self._engine.begin() as connection:
                decided, seen = fallback.advance(connection, BATCH, self._attempts_allowed)
            made = [step for step in decided if step.is_made]
            total += len(made)
            for step in decided:
                metrics.FALLBACKS.labels(step.channel, step.reason).inc()
            if decided:
                log.info("fallbacks_decided", count=len(decided), made=len(made))
            for priority in {step.priority for step in made if step.priority is not None}:
                self._nudge(Priority(priority))
            if seen < BATCH:
                return total
