"""Evens out what lies between a grant and its call, so that calls keep the limit that grants keep.

The limiter counts grants. A claim then takes a few milliseconds, or a hundred on a busy machine, and calls that
were granted evenly would leave in a bunch: the provider would count more in a second than was granted in any. So
each process holds back a start that would be one too many in the second before it.
"""

from collections import deque

SHARE = 0.98
"""Of the limit; the rest is for what the network bunches on the way."""


class Pacer:
    """Counts the starts of one lane; used by the event loop's thread alone. A `limit` of 0 holds nothing back."""

    def __init__(self, limit_per_second: int) -> None:
        self._most = max(1, int(limit_per_second * SHARE)) if limit_per_second > 0 else 0
        self._starts: deque[float] = deque(maxlen=self._most)

    def hold_seconds(self, now: float) -> float:
        """Return 0 and count a start at the monotonic instant `now`, or how long to wait before asking again."""
        if not self._most:
            return 0.0
        if len(self._starts) == self._most:
            wait = self._starts[0] + 1.0 - now
            if wait > 0:
                return wait
        self._starts.append(now)
        return 0.0
