"""The limiters under a clock that the test sets: the Lua scripts themselves, on a real Valkey."""

import redis

from app.limits.breaker import Breaker
from app.limits.countdowns import CountdownSlots
from app.limits.rate import RateLimiter
from app.limits.requests import RequestWindows

START = 1_800_000_000_000_000
"""Microseconds: some moment in 2027."""


class _Clocked:
    now = START

    def _clock(self) -> str:
        return str(self.now)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.now += round(seconds * 1_000_000)


class ClockedRateLimiter(_Clocked, RateLimiter):
    """A rate limiter whose time the test sets."""


class ClockedRequestWindows(_Clocked, RequestWindows):
    """Windows of requests whose time the test sets."""


class ClockedCountdownSlots(_Clocked, CountdownSlots):
    """Countdown places whose time the test sets."""


class ClockedBreaker(_Clocked, Breaker):
    """A breaker whose time the test sets; it remembers nothing, so every call asks the script."""

    def forget(self) -> None:
        """Drop what the process remembers, as 100 ms would."""
        self._memories.clear()


def worst_second(grants: list[tuple[int, int]]) -> int:
    """Return the most tokens in any sliding second [t - 1 s, t], for (microsecond, tokens) in order of time."""
    worst = total = oldest = 0
    for instant, tokens in grants:
        total += tokens
        while grants[oldest][0] < instant - 1_000_000:
            total -= grants[oldest][1]
            oldest += 1
        worst = max(worst, total)
    return worst


def without_ttl(client: "redis.Redis") -> list[bytes]:
    """Return the keys that would stay for ever."""
    return [key for key in client.scan_iter("arauto:*") if client.pttl(key) < 0]
