"""The bridge: Kafka → Celery lists. `run` is the whole process behind `arauto bridge`.

One thread a topic, each with its own consumer and group, so that LOW can stop without HIGH noticing. A loop that
breaks is built anew, with back-off; only a signal ends the process.
"""

import signal
from collections.abc import Sequence
from threading import Event, Lock, Thread, current_thread, main_thread

from app.bridge.supervise import keep_running
from app.observability import metrics
from app.observability.logging import announce, configure, get_logger
from app.queues import TOPIC_LANES
from app.settings import Settings

_log = get_logger(__name__)
_LEAVE_WITHIN_SECONDS = 9.0


def run(settings: Settings, topics: Sequence[str], stop: Event | None = None) -> int:
    """Bridge `topics` until SIGTERM, SIGINT or `stop`; return the exit code of the process."""
    ended = stop or Event()
    if current_thread() is main_thread() and stop is None:
        configure(settings, process="bridge")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        metrics.serve(settings)
    joins = _Joins(topics)
    threads = [
        Thread(
            target=keep_running, args=(settings, TOPIC_LANES[topic], ended, joins.joined), name=topic, daemon=True
        )
        for topic in topics
    ]
    for thread in threads:
        thread.start()
    announce("bridge_started")
    # A wait with a limit, since a signal is served only between waits.
    while not ended.wait(1.0):
        pass
    for thread in threads:
        thread.join(_LEAVE_WITHIN_SECONDS)
    late = [thread.name for thread in threads if thread.is_alive()]
    _log.info("bridge_stopped", late=late)
    return 1 if late else 0


class _Joins:
    """Announces once that every topic has its partitions: from then on no message waits for its group."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._missing = set(topics)
        self._lock = Lock()

    def joined(self, topic: str) -> None:
        with self._lock:
            is_last = self._missing == {topic}
            self._missing.discard(topic)
        if is_last:
            announce("bridge_joined")


__all__ = ["run"]
