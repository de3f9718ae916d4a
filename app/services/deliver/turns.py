"""Whose turn it is next: an ordered delivery ended, so the first that waits behind it is made due at once."""

from collections.abc import Callable, Sequence

from app.db import ordering
from app.db.steady import SteadyConnections
from app.domain.kinds import Priority
from app.observability import metrics


class WakeNext:
    """Runs in the recorder's thread, behind the commit of what ended. `nudge` wakes the relay."""

    def __init__(self, database: SteadyConnections, nudge: Callable[[Priority], None]) -> None:
        self._database = database
        self._nudge = nudge

    def __call__(self, ids: Sequence[str]) -> None:
        """Wake what waits behind these deliveries."""
        woken = self._database.run(ordering.wake, ids)
        metrics.WOKEN.inc(len(woken))
        for priority in set(woken):
            self._nudge(Priority(priority))
