"""A bound on the countdowns that the workers of a queue hold in memory.

A Celery worker takes every countdown of its queue at once and keeps it until it is due, so a provider outage
would fill its memory with retries. A retry gets a countdown only if it finds a place here; all others wait in the
table for the relay. A place is free again when its time has come, whatever became of the countdown.
"""

from collections.abc import Sequence
from secrets import token_hex

from redis import Redis

from app.limits.script import load

MICROSECONDS = 1_000_000
LONGEST_SECONDS = 3600.0


class CountdownSlots:
    """Reserves places for countdowns, at most `limit` a queue. Safe for threads; raises redis.RedisError."""

    def __init__(self, client: Redis, limit: int) -> None:
        self._limit = limit
        self._script = load(client, "countdowns")

    def reserve(self, queue: str, count: int, due_in_seconds: Sequence[float]) -> list[bool]:
        """Reserve a place for each of `count` countdowns, in their order; False where none is left."""
        if count != len(due_in_seconds):
            raise ValueError(f"{count} countdowns, but {len(due_in_seconds)} due times")
        if not count or self._limit <= 0:
            return [False] * count
        dues = [round(min(max(due, 0.0), LONGEST_SECONDS) * MICROSECONDS) for due in due_in_seconds]
        reserved = self._script(
            keys=[f"arauto:countdown:{{{queue}}}"], args=[self._limit, f"{token_hex(6)}:", self._clock(), *dues]
        )
        return [bool(int(one)) for one in reserved]

    def _clock(self) -> str:
        """Return nothing, which means the server's clock; tests put a time in microseconds here."""
        return ""
