"""How many notifications of a category a person may get within a sliding window."""

from dataclasses import dataclass

from app.domain.kinds import Channel

WINDOW_LIMIT_SECONDS = 30 * 86_400
MOST_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class FrequencyCap:
    """At most `most` notifications over any of `channels` in any window of `window_seconds`."""

    most: int
    window_seconds: int
    channels: frozenset[Channel]
