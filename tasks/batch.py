"""Entry of the expander: ticks of beat and nudges of the API arrive here, and its own wish to go on."""

from threading import Lock

from app.celery_app import task
from app.queues import TASK_EXPAND
from app.settings import get_settings
from app.wiring import nudge
from app.wiring_pipeline import expander

_RUNNING = Lock()
"""One run at a time in a process: a second would take the thread that the ids of LOW need."""


@task(TASK_EXPAND, send_events=False)
def expand(v: int) -> None:
    """Go on with the batches for some seconds, and ask to be called again where there is more to do."""
    del v
    if not _RUNNING.acquire(blocking=False):
        return
    try:
        nudge(get_settings()).expand_taken()
        has_more = expander(get_settings()).run(get_settings().batch_budget_seconds)
    finally:
        _RUNNING.release()
    if has_more:
        nudge(get_settings()).expand()
