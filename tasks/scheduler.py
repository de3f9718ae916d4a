"""Beat's scheduler: ticks of relay and expander are nudges, everything else is an ordinary Celery message.

A tick that waits already makes the next one needless. So a slow or absent relay finds one tick a priority (one in
three seconds at the worst), never a pile, and no clocks of two machines are compared, as `expires` would do. It
also costs a tenth of a Celery message, five times a second and priority.
"""

from typing import Any

from celery.beat import Scheduler

from app.domain.kinds import Priority
from app.queues import TASK_EXPAND, TASK_RELAY
from app.settings import get_settings
from app.wiring import nudge


class NudgingScheduler(Scheduler):  # type: ignore[misc]  # Celery has no types
    """Keeps its entries in memory: all intervals are short, and a file would have to survive kill -9."""

    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Return `n`: Celery wakes 10 ms early for drift, and spends them asking each entry in turn."""
        return n + drift

    def schedules_equal(self, old_schedules: Any, new_schedules: Any) -> bool:
        """Tell whether the schedule was read yet; it never changes, so nothing needs comparing at each tick."""
        return old_schedules is not None and new_schedules is not None

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        """Send one due entry."""
        if entry.task not in {TASK_RELAY, TASK_EXPAND}:
            return super().apply_async(entry, producer=producer, advance=advance, **options)
        if advance:
            self.reserve(entry)
        if entry.task == TASK_EXPAND:
            nudge(get_settings()).expand()
        else:
            nudge(get_settings()).nudge(Priority[entry.kwargs["priority"]])
        return None
