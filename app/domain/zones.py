"""Time zones: which names are zones, and which instant a local wall time is. Pure, but for the zone data itself.

A name becomes a zone only when it is on the list of all zones, so nothing that a client writes is ever opened as a
file. A wall time that the clocks skip is the first instant after the gap; one that they show twice is the first of
the two. Both are promises of the API (`docs/preferences.md`).
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

_NO_PLACES = frozenset({"Factory", "localtime", "posixrules"})
_SECOND = timedelta(seconds=1)


class UnknownZoneError(ValueError):
    """The text is no name of the IANA time zone database."""


@cache
def zone_names() -> frozenset[str]:
    """Return the names of all zones; the first call reads the directory of the zone data, which takes 30 ms."""
    return frozenset(available_timezones() - _NO_PLACES)


def zone(name: str) -> ZoneInfo:
    """Return a zone by its IANA name; raise UnknownZoneError for any other text."""
    if name not in zone_names():
        raise UnknownZoneError("not an IANA time zone, such as Europe/Berlin")
    return ZoneInfo(name)


def zone_or(names: Iterator[str | None]) -> ZoneInfo:
    """Return the first of the names that is a zone, UTC if none is. A stored name may have been retired."""
    known = zone_names()
    return ZoneInfo(next((name for name in names if name is not None and name in known), "UTC"))


def instants(wall: datetime, where: ZoneInfo) -> list[datetime]:
    """Return the instants, in UTC, at which clocks in `where` show the naive `wall`: one, or two in an overlap.

    For a wall time inside a gap it is the first instant after the gap.
    """
    first = wall.replace(tzinfo=where, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=where, fold=1).astimezone(UTC)
    if first <= second:
        return [first] if first == second else [first, second]
    return [transition(second, first, where)]


def instant(wall: datetime, where: ZoneInfo) -> datetime:
    """Return the instant, in UTC, of the naive local time `wall`: the first of two, the first after a gap."""
    return instants(wall, where)[0]


def transition(before: datetime, after: datetime, where: ZoneInfo) -> datetime:
    """Return the first whole second after `before` at which the offset is the one of `after`; they differ."""
    offset = after.astimezone(where).utcoffset()
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + middle * _SECOND).astimezone(where).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return (before + high * _SECOND).replace(microsecond=0)
