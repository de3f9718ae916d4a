"""How many requests of one kind a caller may make in any window of so many seconds.

What is granted is kept with an expiry until its window has passed, and the sum of what is kept never exceeds
the limit. An expiry is rounded up to a slot, so that a window of any size is a handful of numbers in one key,
and it is never early: take any window, and the last grant in it. All others in that window were still kept
then, and counted in the sum that the script compared with the limit. So no sliding window holds more than the
limit, whether or not it begins where a minute does. What rounding costs is that a request comes back up to one
slot late.

Several can be taken at once, to be used within `hold_seconds`. They are kept for that much longer, which leaves
the proof as it is.
"""

from dataclasses import dataclass
from typing import NamedTuple

from redis import Redis

from app.limits.script import load

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `limit` in any `window_seconds`, kept in steps of `slot_seconds`."""

    limit: int
    window_seconds: float
    slot_seconds: float
    hold_seconds: float = 0.0


class Taken(NamedTuple):
    """`granted` of what was wanted; `left` are free now; more come back in `back_in_seconds` (0: none is used)."""

    granted: int
    left: int
    back_in_seconds: float


class RequestWindows:
    """Windows by name. Safe for threads; raises redis.RedisError."""

    def __init__(self, client: Redis) -> None:
        self._script = load(client, "requests")

    def take(self, name: str, quota: Quota, want: int = 1) -> Taken:
        """Take up to `want` out of the window `name`. One round trip; the key lives no longer than it counts."""
        granted, left, back = self._script(
            keys=[f"arauto:limit:{{{name}}}"],
            args=[
                quota.limit,
                want,
                round(quota.window_seconds * MICROSECONDS),
                round(quota.slot_seconds * MICROSECONDS),
                round(quota.hold_seconds * MICROSECONDS),
                self._clock(),
            ],
        )
        return Taken(int(granted), int(left), int(back) / MICROSECONDS)

    def _clock(self) -> str:
        """Return nothing, which means the server's clock; tests put a time in microseconds here."""
        return ""
