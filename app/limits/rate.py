"""The calls a second that a provider allows, shared by all workers of all priorities.

Two gates in one script, and a grant passes both:

- **The window.** Every grant is kept until a second (and up to 4 ms more) after it, and the sum of what is kept
  never exceeds the limit. Proof: take any second, and the last grant in it, at time t. All others in that second
  were made after t - 1 s, so each was still kept at t and counted in the sum that the script compared with the
  limit at t. That sum bounds them all, so no sliding second holds more than the limit, however late or early the
  callers are. Nothing about the bucket is needed for this.
- **The bucket.** It fills at 98 % of the limit and holds 2 + limit / 10 tokens. It paces the grants, so that the
  window hardly ever binds, and orders the priorities: HIGH may take every token, NORMAL only those above 10 % of
  the bucket, LOW only those above 40 %. The reserve is a level and not a share of the flow: once at its level LOW
  takes all that flows in. What flowed in while a caller was late waits in the bucket: up to 60 ms of the limit for
  LOW, 100 ms for HIGH.

A plain bucket would have to keep capacity + rate within the limit, so a capacity that outlasts a late caller (a
busy machine, a garbage collection) would cost more than the 5 % that may stay unused; with the window the two are
free of each other. The window has levels of its own: 5 % of the limit is its slack, of which NORMAL leaves 10 %
and LOW 40 %.

A HIGH caller that did not get all it wanted is first for the time that it was told to wait (and 50 ms): this
keeps LOW from outrunning it where the limit is so small that the levels are less than one token.
"""

import math
from dataclasses import dataclass

from redis import Redis

from app.domain.kinds import Channel, Priority
from app.limits.script import load
from app.observability import metrics

RESERVE_PERCENT = {Priority.HIGH: 0, Priority.NORMAL: 10, Priority.LOW: 40}
WORTH_SECONDS = {Priority.HIGH: 0.005, Priority.NORMAL: 0.01, Priority.LOW: 0.02}
"""How much flow a caller lets gather before it asks again: a round trip a token would cost more than the token."""
LONGEST_PAUSE_SECONDS = 3600.0
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Grant:
    """`granted` calls may begin now; for the rest ask again in `wait_seconds` (0 if there is no rest)."""

    granted: int
    wait_seconds: float


class RateLimiter:
    """Grants provider calls. Safe for threads; raises redis.RedisError."""

    def __init__(self, client: Redis) -> None:
        self._take = load(client, "rate")
        self._pause = load(client, "rate_pause")

    def take(self, provider: str, channel: Channel, priority: Priority, want: int, limit_per_second: int) -> Grant:
        """Grant up to `want` calls of `provider` on `channel`. A limit of 0 means none, and asks nobody."""
        if limit_per_second <= 0 or want <= 0:
            return Grant(max(want, 0), 0.0)
        granted, wait = self._take(
            keys=_keys(provider, channel),
            args=[
                limit_per_second,
                want,
                RESERVE_PERCENT[priority],
                int(priority is Priority.HIGH),
                max(1, math.ceil(limit_per_second * WORTH_SECONDS[priority])),
                self._clock(),
            ],
        )
        labels = (provider, channel.value, priority.name)
        metrics.RATE_GRANTED.labels(*labels).inc(int(granted))
        metrics.RATE_REFUSED.labels(*labels).inc(want - int(granted))
        return Grant(int(granted), int(wait) / MICROSECONDS)

    def pause(self, provider: str, channel: Channel, seconds: float) -> None:
        """Grant nothing for `seconds` (at most an hour): the provider throttles the whole account.

        The pause begins at once, for all workers; a longer one that already runs is kept. Not a number, and
        anything below zero, is no pause.
        """
        if not seconds > 0:
            return
        microseconds = round(min(seconds, LONGEST_PAUSE_SECONDS) * MICROSECONDS)
        self._pause(keys=_keys(provider, channel)[:1], args=[microseconds, self._clock()])

    def _clock(self) -> str:
        """Return nothing, which means the server's clock; tests put a time in microseconds here."""
        return ""


def _keys(provider: str, channel: Channel) -> list[str]:
    state = f"arauto:rate:{{{provider}:{channel.value}}}"
    return [state, f"{state}:window"]
