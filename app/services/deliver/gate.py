"""The gate of a lane: ready work waits here, unclaimed, for room, for the breaker and for tokens.

Waiting costs nothing but memory; only past `rate_wait_seconds`, or behind a breaker that stays open for longer
than a moment, is work deferred in the table. Redis down means no tokens (fail closed), and a breaker that counts
as closed: the provider itself will answer.
"""

from functools import partial
from time import monotonic

from redis.exceptions import RedisError

from app.limits.breaker import Breaker, Permit
from app.limits.rate import Grant, RateLimiter
from app.observability.logging import get_logger
from app.services.deliver.lane import Lane
from app.services.deliver.work import Work

log = get_logger(__name__)

BREAKER_PATIENCE_SECONDS = 3.0
"""Work stays parked behind an open breaker for this long; for longer it goes back to the table."""
_LEAST_WAIT_SECONDS = 0.001
_MOST_WAIT_SECONDS = 1.0
_REDIS_PAUSE_SECONDS = 0.5
_TICK_SECONDS = 60.0


class Gate:
    """Lets ready work of one lane through to the claim."""

    def __init__(self, lane: Lane, rate: RateLimiter, breaker: Breaker) -> None:
        self._lane = lane
        self._rate = rate
        self._breaker = breaker

    def run(self) -> None:
        """Pass work on until the lane stops; the body of the gate thread."""
        lane = self._lane
        while not lane.stopped.is_set():
            if lane.ready.wait_filled(_TICK_SECONDS):
                try:
                    wait_seconds = self.step()
                except Exception:
                    # Nobody would start another thread for this lane, and what waits here would wait for ever.
                    log.exception("gate_step_failed", lane=str(lane.key))
                    wait_seconds = _MOST_WAIT_SECONDS
                if wait_seconds:
                    lane.stopped.wait(max(_LEAST_WAIT_SECONDS, min(wait_seconds, _MOST_WAIT_SECONDS)))

    def step(self) -> float:
        """Let through what may go now; return how long to wait before the next step, in seconds."""
        lane = self._lane
        first = lane.ready.peek()
        if first is not None and monotonic() - first.parked_at > lane.rules.rate_wait_seconds:
            self._defer_overdue()
            return 0.0
        room = lane.window.wait_room(_MOST_WAIT_SECONDS)
        want = min(room, len(lane.ready), lane.rules.batch)
        if want <= 0:
            return 0.0
        permit = self._permit(want)
        if permit.granted <= 0:
            if permit.wait_seconds > BREAKER_PATIENCE_SECONDS:
                self._defer(lane.ready.take(lane.rules.batch), permit.wait_seconds, 0.25, "breaker")
                return 0.0
            return permit.wait_seconds or _REDIS_PAUSE_SECONDS
        grant = self._tokens(permit.granted)
        if permit.is_probe and grant.granted < permit.granted:
            self.give_back_probes(permit.granted - grant.granted)
        if grant.granted:
            self._let_through(grant.granted, is_probe=permit.is_probe)
        elif grant.wait_seconds > lane.rules.rate_wait_seconds:
            self._defer(lane.ready.take(lane.rules.batch), grant.wait_seconds, 0.1, "paused")
            return 0.0
        return grant.wait_seconds if grant.granted < permit.granted else 0.0

    def give_back_probes(self, probes: int) -> None:
        """Return half-open probes that came to no call; lost ones time out by themselves."""
        try:
            self._breaker.give_back(self._lane.provider.name, probes)
        except RedisError:
            log.warning("breaker_unreachable", provider=self._lane.provider.name)

    def _permit(self, want: int) -> Permit:
        try:
            return self._breaker.permit(self._lane.provider.name, want, self._lane.key.priority)
        except RedisError:
            return Permit(want, is_probe=False, wait_seconds=0.0)

    def _tokens(self, want: int) -> Grant:
        lane = self._lane
        try:
            return self._rate.take(
                lane.provider.name, lane.key.channel, lane.key.priority, want, lane.rules.limit_per_second
            )
        except RedisError as error:
            log.warning("rate_limiter_unreachable", lane=str(lane.key), error=type(error).__name__)
            return Grant(0, _REDIS_PAUSE_SECONDS)

    def _let_through(self, count: int, *, is_probe: bool) -> None:
        work = self._lane.ready.take(count)
        for item in work:
            item.is_probe = is_probe
        self._lane.window.take(len(work))
        self._lane.granted.put(work)

    def _defer_overdue(self) -> None:
        limit = monotonic() - self._lane.rules.rate_wait_seconds
        taken = self._lane.ready.take(self._lane.rules.batch)
        overdue = [item for item in taken if item.parked_at < limit]
        self._lane.ready.put_back([item for item in taken if item.parked_at >= limit])
        self._defer(overdue, self._lane.rules.rate_wait_seconds / 3, 0.5, "rate")

    def _defer(self, work: list[Work], delay_seconds: float, spread: float, reason: str) -> None:
        pairs = [(item.id, item.attempts) for item in work]
        act = partial(self._lane.defer, pairs, delay_seconds, spread, reason)
        self._lane.attempt_step("defer", act, partial(self._lane.ready.put_back, work))
