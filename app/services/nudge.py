"""The nudge: after a commit, wake the relay at once, so that HIGH does not wait for the next tick.

Invariants: a nudge never raises, and never keeps its caller waiting for longer than a short socket time-out, once;
while the broker is away the next calls return at once. Losing one costs a tick, nothing else. Many commits make
one task: an in-process throttle, then a guard in Redis, which the relay deletes before it looks into the table,
so that a commit in between is not swallowed.
"""

from collections.abc import Callable
from threading import Lock
from time import monotonic

import redis

from app.domain.kinds import Priority
from app.observability import metrics
from app.observability.logging import get_logger
from app.queues import BATCH_QUEUE, RELAY_QUEUE
from app.services.task_list import Task, expand_task, relay_task

_log = get_logger(__name__)

THROTTLE_SECONDS = {Priority.HIGH: 0.001, Priority.NORMAL: 0.05, Priority.LOW: 0.2}
"""A commit that falls into it after the relay has looked waits for the tick, so for HIGH it is short. For the
others it lets a run of the relay find more than one row, which costs a fraction for each."""
GUARD_MILLISECONDS = 3000
"""How long a lost task keeps the relay from being woken; and while no relay runs, one task in it piles up."""
PAUSE_SECONDS = 5.0
EXPAND_GUARD = "arauto:nudge:batch"
EXPAND_THROTTLE_SECONDS = 0.05

# Guard and push in one step: a client that dies in between would leave a guard without its task.
_SCRIPT = """
if redis.call('SET', KEYS[1], 1, 'NX', 'PX', ARGV[1]) then
  redis.call('LPUSH', KEYS[2], ARGV[2])
  return 1
end
return 0
"""


def guard_key(priority: Priority) -> str:
    """Return the key that says a nudge of this priority waits to be taken."""
    return f"arauto:nudge:{priority.name}"


class Nudge:
    """Wakes the relay. `broker` needs socket time-outs of a fraction of a second and no retries."""

    def __init__(self, broker: "redis.Redis", clock: Callable[[], float] = monotonic) -> None:
        self._run = broker.register_script(_SCRIPT)
        self._broker = broker
        self._clock = clock
        self._lock = Lock()
        self._last_at: dict[str, float] = {}
        self._paused_until = float("-inf")

    def nudge(self, priority: Priority) -> None:
        """Ask for a run of the relay of `priority`; returns nothing, raises nothing."""
        self._send(
            guard_key(priority), RELAY_QUEUE, lambda: relay_task(RELAY_QUEUE, priority), THROTTLE_SECONDS[priority]
        )

    def expand(self) -> None:
        """Ask for a run of the expander of batches; returns nothing, raises nothing."""
        self._send(EXPAND_GUARD, BATCH_QUEUE, lambda: expand_task(BATCH_QUEUE), EXPAND_THROTTLE_SECONDS)

    def _send(self, guard: str, queue: str, task: Callable[[], Task], throttle_seconds: float) -> None:
        now = self._clock()
        if now < self._paused_until or now - self._last_at.get(guard, float("-inf")) < throttle_seconds:
            return
        # One thread talks to the broker at a time: a slow broker may hold up one request, never all of them.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._last_at[guard] = now
            is_sent = self._run(keys=[guard, queue], args=[GUARD_MILLISECONDS, task()])
            metrics.NUDGES.labels("sent" if is_sent else "coalesced").inc()
        except (redis.RedisError, OSError) as error:
            self._paused_until = self._clock() + PAUSE_SECONDS
            metrics.NUDGES.labels("failed").inc()
            _log.info("nudge_failed", reason=type(error).__name__)
        finally:
            self._lock.release()

    def taken(self, priority: Priority) -> None:
        """Let the next commit nudge again; called by the relay before it looks for due rows."""
        self._take(guard_key(priority))

    def expand_taken(self) -> None:
        """Let the next change of a batch nudge again; called by the expander before it looks for work."""
        self._take(EXPAND_GUARD)

    def _take(self, guard: str) -> None:
        try:
            self._broker.delete(guard)
        except (redis.RedisError, OSError) as error:
            _log.debug("nudge_guard_not_deleted", reason=type(error).__name__)
