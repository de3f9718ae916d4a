"""Entries of the delivery worker: a chunk of ids, or a retry whose countdown is over. They only park ids."""

import threading
from typing import Any

from celery.signals import worker_init, worker_shutdown, worker_shutting_down

from app.celery_app import task
from app.domain.kinds import Channel, Priority
from app.queues import LANES, TASK_DELIVER, TASK_RETRY
from app.settings import get_settings
from app.wiring_worker import worker

_QUEUE_PRIORITY = {lane.queue: lane.priority for lane in LANES.values()}
_DELIVERS = threading.Event()
"""Set in a worker of the three queues: the relay's worker has nothing to warm up or hand back."""


@task(TASK_DELIVER, bind=True)
def deliver(self: Any, *, v: int, chunk: str, channel: str, ids: list[str], suspect: bool = False) -> None:
    """Park the ids of a chunk. One that Celery delivers again may have killed its worker: each id is suspect."""
    del v, chunk
    info = self.request.delivery_info or {}
    is_suspect = suspect or bool(info.get("redelivered"))
    worker(get_settings()).park(_priority(info), Channel(channel), ids, attempt=None, is_suspect=is_suspect)


@task(TASK_RETRY, bind=True)
def retry(self: Any, v: int, id: str, channel: str, attempt: int) -> None:  # noqa: A002  the message's own word
    """Park one id whose row is still at `attempt` attempts; any other is dropped when it is loaded."""
    del v
    priority = _priority(self.request.delivery_info or {})
    worker(get_settings()).park(priority, Channel(channel), [id], attempt=attempt, is_suspect=False)


def _priority(info: dict[str, Any]) -> Priority:
    return _QUEUE_PRIORITY.get(str(info.get("routing_key")), Priority.NORMAL)


def _is_delivering(sender: Any) -> bool:
    return any(queue in _QUEUE_PRIORITY for queue in sender.app.amqp.queues.consume_from)


def _warm_up(sender: Any, **_: Any) -> None:
    if _is_delivering(sender):
        _DELIVERS.set()
        worker(get_settings()).start()


def _hand_back(**_: Any) -> None:
    """Begin to stop, in a thread: the main thread, which runs this handler, may hold any lock."""
    if _DELIVERS.is_set():
        threading.Thread(target=worker(get_settings()).begin_stop, daemon=True).start()


def _end(**_: Any) -> None:
    if _DELIVERS.is_set():
        worker(get_settings()).stop()


worker_init.connect(_warm_up, weak=False)
worker_shutting_down.connect(_hand_back, weak=False)
worker_shutdown.connect(_end, weak=False)
