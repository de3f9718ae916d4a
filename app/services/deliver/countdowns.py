"""Celery countdowns of retries that are due soon, sent by a thread of their own after their commit.

A place is reserved before the record, because the row's `relay_at` depends on it. A countdown that is never sent,
or lost, does no harm: the relay finds the row a few seconds later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

from redis.exceptions import RedisError

from app.domain.kinds import Channel
from app.limits.countdowns import CountdownSlots
from app.observability import metrics
from app.observability.logging import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Countdown:
    """A retry of a delivery, tied by `attempt` to the row's attempts. `delay_seconds` counts from now."""

    id: str
    channel: Channel
    attempt: int
    queue: str
    delay_seconds: float


class Countdowns:
    """Reserves places for countdowns and sends them through `send`, which may raise anything."""

    def __init__(self, slots: CountdownSlots, horizon_seconds: float, send: Callable[[Countdown], None]) -> None:
        self._slots = slots
        self._horizon_seconds = horizon_seconds
        self._send = send
        self._queue: SimpleQueue[Countdown | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="countdowns", daemon=True)

    def start(self) -> None:
        """Start the sending thread."""
        self._thread.start()

    def reserve(self, queue: str, delays: Sequence[float]) -> list[bool]:
        """Reserve a place for each delay that is within the horizon; without Redis there is none."""
        near = [delay for delay in delays if delay <= self._horizon_seconds]
        if not near:
            return [False] * len(delays)
        try:
            answers = iter(self._slots.reserve(queue, len(near), near))
        except RedisError:
            metrics.COUNTDOWNS.labels("unreachable").inc(len(near))
            return [False] * len(delays)
        reserved = [delay <= self._horizon_seconds and next(answers) for delay in delays]
        metrics.COUNTDOWNS.labels("reserved").inc(sum(reserved))
        metrics.COUNTDOWNS.labels("no_place").inc(len(near) - sum(reserved))
        return reserved

    def schedule(self, countdown: Countdown) -> None:
        """Send a countdown soon; only after its row was committed."""
        self._queue.put(countdown)

    def stop(self, wait_seconds: float) -> None:
        """Send what waits, for `wait_seconds` at most."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(wait_seconds)

    def _run(self) -> None:
        while (countdown := self._queue.get()) is not None:
            try:
                self._send(countdown)
            except Exception as error:  # noqa: BLE001  whatever the broker's client raises, the relay takes over
                log.info("countdown_not_sent", delivery_id=countdown.id, error=type(error).__name__)
