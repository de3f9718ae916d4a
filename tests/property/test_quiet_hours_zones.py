"""Quiet hours in every zone of the world, on the days on which its clocks change."""

from datetime import UTC, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.quiet_hours import Window, release_at, share, spread_until
from app.domain.zones import zone_names

ZONES = sorted(zone_names())
YEARS = range(2025, 2029)
WINDOWS = [
    Window(time(22), time(8)),
    Window(time(0), time(8)),
    Window(time(22), time(2, 30)),
    Window(time(1, 30), time(2, 30)),
    Window(time(3), time(2, 30)),
    Window(time(23), time(0)),
    Window(time(0, 30), time(0, 29)),
]
HOUR = timedelta(hours=1)
STEP = timedelta(minutes=20)


@cache
def changes(name: str) -> list[datetime]:
    """The instants, to the hour, after which clocks in a zone are different from before."""
    where = ZoneInfo(name)
    first, last = datetime(YEARS[0], 1, 1, tzinfo=UTC), datetime(YEARS[-1] + 1, 1, 1, tzinfo=UTC)
    days = [first + timedelta(days=n) for n in range((last - first).days)]
    found = []
    for day, after in pairwise(days):
        if day.astimezone(where).utcoffset() != after.astimezone(where).utcoffset():
            found += [
                day + n * HOUR
                for n in range(24)
                if (day + n * HOUR).astimezone(where).utcoffset()
                != (day + (n + 1) * HOUR).astimezone(where).utcoffset()
            ]
    return found


def check(where: ZoneInfo, window: Window, start: datetime, end: datetime, step: timedelta = STEP) -> None:
    """Hold the promises for everything that is due between two instants."""
    latest = due = start
    while due < end:
        release = release_at(due, window, where) or due
        assert not window.holds(release.astimezone(where).time()), (where, window, due)
        assert due <= release <= due + timedelta(hours=50), (where, window, due)
        assert release >= latest, (where, window, due)
        for part in (0.0, 0.37, 0.999):
            spread = spread_until(release, part * 600, window, where)
            assert not window.holds(spread.astimezone(where).time()), (where, window, due)
            assert release <= spread < release + timedelta(seconds=600)
        latest = release
        due += step


@pytest.mark.parametrize("part", range(4))
def test_every_zone_keeps_its_quiet_hours_on_the_days_its_clocks_change(part):
    """All zones, all changes of four years, and windows that end in the gap, in the overlap and at midnight.

    Nothing is released inside quiet hours or before it was due, nothing is lost, and nothing overtakes. Fails when
    only the first of two ends is looked for, and when clocks that are set back to before the window do not end it.
    """
    checked = 0
    for name in ZONES[part::4]:
        for change in changes(name):
            for window in WINDOWS:
                check(ZoneInfo(name), window, change - 26 * HOUR, change + 26 * HOUR, timedelta(minutes=53))
                checked += 1
    assert checked > 1000


def test_a_day_that_a_zone_skipped_holds_for_another_day_and_loses_nothing():
    """Samoa had no 30 December 2011: what was held over it goes on the 31st, when the window ends."""
    where = ZoneInfo("Pacific/Apia")
    due = datetime(2011, 12, 30, 9, tzinfo=UTC)  # 23:00 on the 29th
    assert due.astimezone(where).strftime("%d %H:%M") == "29 23:00"
    release = release_at(due, Window(time(22), time(8)), where)
    assert release is not None
    assert release.astimezone(where).strftime("%d %H:%M") == "31 08:00"
    for window in WINDOWS:
        check(where, window, due - 48 * HOUR, due + 72 * HOUR)


times = st.builds(time, st.integers(0, 23), st.integers(0, 59))


@given(
    st.sampled_from(ZONES),
    times,
    times,
    st.datetimes(datetime(1995, 1, 1), datetime(2037, 1, 1)),  # noqa: DTZ001  hypothesis adds no zone to bounds
)
def test_any_window_at_any_time_in_any_zone(name, start, end, due):
    """The promises hold for windows that nobody would think of."""
    if start != end:
        due = due.replace(tzinfo=UTC)
        check(ZoneInfo(name), Window(start, end), due, due + timedelta(minutes=61))


@given(st.uuids())
def test_the_share_of_an_id_is_a_part_of_one(identifier):
    """The spread of a delivery is the same whoever works it out, and below the configured number of seconds."""
    assert 0 <= share(str(identifier)) < 1
    assert share(str(identifier)) == share(str(identifier))
