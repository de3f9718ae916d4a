"""Entries of what beat asks for beside the relay: rescue, partitions ahead, retention, and erasing deleted users.

Each kind runs once at a time in a process, and at most once in half its interval: a slow one skips the ticks that
come meanwhile, so that it never takes the thread that a relay needs, and a pile from a downtime is gone at once.
"""

from collections.abc import Callable
from threading import Lock
from time import monotonic

from app.celery_app import task
from app.observability.logging import get_logger
from app.queues import TASK_ERASE, TASK_PARTITIONS, TASK_PRUNE, TASK_RESCUE
from app.settings import get_settings
from app.wiring_pipeline import recovery_services, relay_services, upkeep_services

_log = get_logger(__name__)


class _Turn:
    """Whose turn it is to run one kind of upkeep in this process."""

    def __init__(self) -> None:
        self.running = Lock()
        self.next_at = float("-inf")


_TURNS = {name: _Turn() for name in (TASK_RESCUE, TASK_PARTITIONS, TASK_PRUNE, TASK_ERASE)}


def _each(name: str, interval_seconds: float, *steps: Callable[[], object]) -> None:
    """Run every step even where an earlier one fails; the next tick tries that one again."""
    turn = _TURNS[name]
    if monotonic() < turn.next_at or not turn.running.acquire(blocking=False):
        return
    try:
        turn.next_at = monotonic() + interval_seconds / 2
        for step in steps:
            try:
                step()
            except Exception:  # noqa: BLE001  the other steps must run whatever one of them raises
                _log.exception("upkeep_step_failed", task_name=name, step=step.__qualname__)
    finally:
        turn.running.release()


@task(TASK_RESCUE)
def rescue(v: int) -> None:
    """Bring back what a dead hop holds: leases, uncertainties, deadlines, fallbacks, lost messages."""
    del v
    recovery = recovery_services(get_settings())
    _each(
        TASK_RESCUE,
        get_settings().rescue_interval_seconds,
        recovery.rescue_sending.run_once,
        recovery.resolve.run_once,
        recovery.expire.run_once,
        recovery.advance.run_once,
        relay_services(get_settings()).rescue_queued.run_once,
    )


@task(TASK_PARTITIONS)
def partitions(v: int) -> None:
    """Make the partitions of the coming days."""
    del v
    _each(
        TASK_PARTITIONS,
        get_settings().partitions_interval_seconds,
        upkeep_services(get_settings()).partitions.run_once,
    )


@task(TASK_PRUNE)
def prune(v: int) -> None:
    """Drop days that are past their retention, and delete old keys and markers."""
    del v
    _each(
        TASK_PRUNE,
        get_settings().prune_interval_seconds,
        upkeep_services(get_settings()).retention.run_once,
        upkeep_services(get_settings()).batches.run_once,
        relay_services(get_settings()).rescue_queued.prune,
    )


@task(TASK_ERASE)
def erase(v: int) -> None:
    """Go on with erasing what was sent to deleted users."""
    del v
    _each(TASK_ERASE, get_settings().erasure_interval_seconds, upkeep_services(get_settings()).erase.run_once)
