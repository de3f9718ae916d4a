"""Entries of what beat asks for beside the relay: rescue and resolution, partitions ahead, pruning and retention.

Each kind runs once at a time in a process: a slow one skips the ticks that come meanwhile, so that it never takes
the thread that a relay needs.
"""

from collections.abc import Callable
from threading import Lock

from app.celery_app import task
from app.observability.logging import get_logger
from app.queues import TASK_PARTITIONS, TASK_PRUNE, TASK_RESCUE
from app.settings import get_settings
from app.wiring import recovery_services, relay_services, upkeep_services

_log = get_logger(__name__)
_RUNNING = {name: Lock() for name in (TASK_RESCUE, TASK_PARTITIONS, TASK_PRUNE)}


def _each(name: str, *steps: Callable[[], object]) -> None:
    """Run every step even where an earlier one fails; the next tick tries that one again."""
    if not _RUNNING[name].acquire(blocking=False):
        return
    try:
        for step in steps:
            try:
                step()
            except Exception:  # noqa: BLE001  the other steps must run whatever one of them raises
                _log.exception("upkeep_step_failed", task_name=name, step=step.__qualname__)
    finally:
        _RUNNING[name].release()


@task(TASK_RESCUE)
def rescue(v: int) -> None:
    """Bring back what a dead hop holds: expired leases, decided uncertainties, passed deadlines, lost messages."""
    del v
    recovery = recovery_services(get_settings())
    _each(
        TASK_RESCUE,
        recovery.rescue_sending.run_once,
        recovery.resolve.run_once,
        recovery.expire.run_once,
        relay_services(get_settings()).rescue_queued.run_once,
    )


@task(TASK_PARTITIONS)
def partitions(v: int) -> None:
    """Make the partitions of the coming days."""
    del v
    _each(TASK_PARTITIONS, upkeep_services(get_settings()).partitions.run_once)


@task(TASK_PRUNE)
def prune(v: int) -> None:
    """Drop days that are past their retention, and delete old keys and markers."""
    del v
    _each(
        TASK_PRUNE,
        upkeep_services(get_settings()).retention.run_once,
        relay_services(get_settings()).rescue_queued.prune,
    )
