"""Quiet hours: when a message that disturbs is held, and until when. Pure.

A window is half-open, [start, end), in the wall time of the person's zone; it may cross midnight and may begin at
it. What is due inside is held until the window's end and then spread over some minutes, so that the morning is no
burst. Promises that the property tests hold for every zone and every change of its clocks:

* no message is released while clocks show a time inside the window, nor before it was due;
* every message is released, and of two the one that was due later is not released earlier.
"""

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from app.domain.zones import instants, transition

_FORM = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY = timedelta(days=1)
_DAYS_LIMIT = 8
"""A window of nearly a day, open only while clocks are set forward, holds for another day; never for many."""


class InvalidWindowError(ValueError):
    """Two times that are no window."""


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` until just before `end`, each day, by the clocks on the wall; never empty or the whole day."""

    start: time
    end: time

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise InvalidWindowError(
                "start and end must differ: a window of no length and one of a day look alike"
            )

    @classmethod
    def parse(cls, start: str, end: str) -> "Window":
        """Return the window between two times written HH:MM; raise InvalidWindowError."""
        return cls(_time(start), _time(end))

    def holds(self, wall: time) -> bool:
        """Tell whether a wall time is inside."""
        if self.start < self.end:
            return self.start <= wall < self.end
        return wall >= self.start or wall < self.end

    def texts(self) -> tuple[str, str]:
        """Return start and end as HH:MM."""
        return self.start.strftime("%H:%M"), self.end.strftime("%H:%M")


DEFAULT_WINDOW = Window(time(22), time(8))


def release_at(due_at: datetime, window: Window, where: ZoneInfo) -> datetime | None:
    """Return when something due at the aware `due_at` may go, None for at once.

    It is the first instant from then on at which clocks show a time outside the window. So an end that the clocks
    skip is the first instant after the gap, of an end that they show twice it is the first still ahead, and clocks
    that are set back to before the window end it.
    """
    at = due_at
    for _ in range(_DAYS_LIMIT):
        local = at.astimezone(where)
        if not window.holds(local.time()):
            break
        at = _next_end(at, local, window, where)
    return None if at == due_at else at


def quiet_within(at: datetime, seconds: float, window: Window, where: ZoneInfo) -> float | None:
    """Return in how many of the next `seconds` after the loud instant `at` quiet hours begin; None: in none.

    For spans of minutes: a window that begins and ends within the span may be passed over.
    """
    low, high = 0.0, seconds
    if not window.holds((at + timedelta(seconds=high)).astimezone(where).time()):
        return None
    while high - low > 1:
        middle = (low + high) / 2
        if window.holds((at + timedelta(seconds=middle)).astimezone(where).time()):
            high = middle
        else:
            low = middle
    return low


def spread_until(release: datetime, spread_seconds: float, window: Window, where: ZoneInfo) -> datetime:
    """Return `release` moved later by `spread_seconds`, or `release` itself when that would be quiet again."""
    moved = release + timedelta(seconds=spread_seconds)
    return release if window.holds(moved.astimezone(where).time()) else moved


def share(identifier: str) -> float:
    """Return a number in [0, 1) that depends on an id only, evenly spread: the random end of a UUIDv7."""
    return int(identifier.replace("-", "")[-8:], 16) / 2**32


def _next_end(at: datetime, local: datetime, window: Window, where: ZoneInfo) -> datetime:
    """Return when clocks first leave the window after `at`, which is inside it: at its end, or by being set."""
    # Clocks that are set back over midnight show the end of the day before once more.
    day = local.date() - _DAY
    ahead: list[datetime] = []
    while not ahead:
        ahead = [end for end in instants(datetime.combine(day, window.end), where) if end > at]
        day += _DAY
    end = ahead[0]
    if end.astimezone(where).utcoffset() != local.utcoffset():
        change = transition(at, end, where)
        if not window.holds(change.astimezone(where).time()):
            return change
    return end


def _time(text: str) -> time:
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidWindowError("a time of day is written HH:MM, from 00:00 to 23:59")
    return time(int(match[1]), int(match[2]))
