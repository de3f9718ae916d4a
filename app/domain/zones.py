"""Time zones: which names are zones.

A name becomes a zone only when it is on the list of all zones, so nothing that a client writes is ever opened as a
file.
"""

from functools import cache
from zoneinfo import ZoneInfo, available_timezones

_NO_PLACES = frozenset({"Factory", "localtime", "posixrules"})


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
