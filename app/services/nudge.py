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
from app.queues import RELAY_QUEUE
from app.services.task_list import relay_task

_log = get_logger(__name__)

THROTTLE_SECONDS = {Priority.HIGH: 0.001, Priority.NORMAL: 0.05, Priority.LOW: 0.2}
"""A commit that falls into it after the relay has looked waits for the tick, so for HIGH it is short. For the
others it lets a run of the relay find more than one row, which costs a fraction for each."""
GUARD_MILLISECONDS = 3000
"""How long a lost task keeps the relay from being woken; and while no relay runs, one task in it piles up."""
PAUSE_SECONDS = 5.0

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
        self._last_at = {priority: float("-inf") for priority in Priority}
        self._paused_until = float("-inf")

    def nudge(self, priority: Priority) -> None:
        """Ask for a run of the relay of `priority`; returns nothing, raises nothing."""
        now = self._clock()
        if now < self._paused_until or now - self._last_at[priority] < THROTTLE_SECONDS[priority]:
            return
        # One thread talks to the broker at a time: a slow broker may hold up one request, never all of them.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._last_at[priority] = now
            task = relay_task(RELAY_QUEUE, priority)
            is_sent = self._run(keys=[guard_key(priority), RELAY_QUEUE], args=[GUARD_MILLISECONDS, task])
            metrics.NUDGES.labels("sent" if is_sent else "coalesced").inc()
        except (redis.RedisError, OSError) as error:
            self._paused_until = self._clock() + PAUSE_SECONDS
            metrics.NUDGES.labels("failed").inc()
            _log.info("nudge_failed", reason=type(error).__name__)
        finally:
            self._lock.release()

    def taken(self, priority: Priority) -> None:
        """Let the next commit nudge again; called by the relay before it looks for due rows."""
        try:
            self._broker.delete(guard_key(priority))
        except (redis.RedisError, OSError) as error:
            _log.debug("nudge_guard_not_deleted", reason=type(error).__name__)
