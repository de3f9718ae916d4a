"""Beat's scheduler: ticks of the relay are nudges, everything else is an ordinary Celery message.

A tick that waits already makes the next one needless. So a slow or absent relay finds one tick a priority (one in
three seconds at the worst), never a pile, and no clocks of two machines are compared, as `expires` would do. It
also costs a tenth of a Celery message, five times a second and priority.
"""

from typing import Any

from celery.beat import Scheduler

from app.domain.kinds import Priority
from app.queues import TASK_RELAY
from app.settings import get_settings
from app.wiring import nudge


class NudgingScheduler(Scheduler):  # type: ignore[misc]  # Celery has no types
    """Keeps its entries in memory: all intervals are short, and a file would have to survive kill -9."""

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        """Send one due entry."""
        if entry.task != TASK_RELAY:
            return super().apply_async(entry, producer=producer, advance=advance, **options)
        if advance:
            self.reserve(entry)
        nudge(get_settings()).nudge(Priority[entry.kwargs["priority"]])
        return None
