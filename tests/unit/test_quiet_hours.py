"""Quiet hours: the half-open window, its end over clock changes, and which hours hold for a message."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from app.domain.kinds import Channel, Priority
from app.domain.preferences import QuietRule, QuietWish, TenantPolicy, category_policy, quiet_window
from app.domain.quiet_hours import DEFAULT_WINDOW, InvalidWindowError, Window, release_at
from app.domain.zones import UnknownZoneError, instant, zone, zone_or

BERLIN = ZoneInfo("Europe/Berlin")
TENANT = TenantPolicy()


def at(text: str, where: ZoneInfo = BERLIN, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=where, fold=fold).astimezone(UTC)


@pytest.mark.parametrize(
    ("window", "quiet", "loud"),
    [
        (
            ("00:00", "08:00"),
            ["00:00", "06:59:59", "07:00", "07:59:59"],
            ["08:00", "21:00", "21:59:59", "23:59:59"],
        ),
        (("22:00", "07:00"), ["22:00", "00:00", "06:59:59"], ["21:59:59", "07:00", "21:00"]),
        (("09:00", "17:00"), ["09:00", "16:59:59"], ["08:59:59", "17:00", "21:00", "00:00"]),
        (("22:00", "00:00"), ["22:00", "23:59:59"], ["00:00", "21:59:59"]),
    ],
)
def test_a_window_is_half_open(window, quiet, loud):
    """Case E03. From the start on, until just before the end; across midnight, and from midnight on.

    Fails when the window is closed at its end, and when a start of 00:00 counts as no start.
    """
    found = Window.parse(*window)
    assert all(found.holds(time.fromisoformat(text)) for text in quiet)
    assert not any(found.holds(time.fromisoformat(text)) for text in loud)


def test_what_is_due_at_the_end_of_the_window_goes_at_once():
    """Case E03. 07:00:00 is not held, 06:59:59 for a second."""
    window = Window.parse("22:00", "07:00")
    assert release_at(at("2026-06-01T07:00:00"), window, BERLIN) is None
    assert release_at(at("2026-06-01T06:59:59"), window, BERLIN) == at("2026-06-01T07:00:00")
    assert release_at(at("2026-06-01T21:59:59"), window, BERLIN) is None
    assert release_at(at("2026-06-01T22:00:00"), window, BERLIN) == at("2026-06-02T07:00:00")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("08:00", "08:00"),
        ("24:00", "08:00"),
        ("8:00", "09:00"),
        ("22:00", "08:60"),
        ("", "08:00"),
        ("٢٢:00", "08:00"),
    ],
)
def test_what_is_no_window_is_refused(start, end):
    """Equal times could mean never or always, so they mean nothing."""
    with pytest.raises(InvalidWindowError):
        Window.parse(start, end)


def test_a_wall_time_in_the_gap_is_the_first_instant_after_it():
    """Case E01. 02:30 in Berlin on 29 March 2026 does not exist: 03:00+02:00, which is 01:00Z.

    Fails with fold=0, which gives 03:30, and with fold=1, which gives 01:30: before the time asked for.
    """
    gap = datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001  a wall time
    assert instant(gap, BERLIN) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert instant(gap.replace(minute=0), BERLIN) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert instant(gap.replace(hour=3, minute=0), BERLIN) == datetime(2026, 3, 29, 1, tzinfo=UTC)


def test_a_wall_time_in_the_overlap_is_the_first_of_the_two():
    """02:30 in Berlin on 25 October 2026 comes twice, at 00:30Z and at 01:30Z."""
    assert instant(datetime(2026, 10, 25, 2, 30), BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # noqa: DTZ001


def test_a_window_that_ends_in_the_gap_or_in_the_overlap():
    """The same contract for the end of quiet hours; in the second pass of an overlap the end is the second one."""
    window = Window.parse("22:00", "02:30")
    assert release_at(at("2026-03-28T23:00:00"), window, BERLIN) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert release_at(at("2026-10-24T23:00:00"), window, BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert release_at(at("2026-10-25T02:10:00", fold=1), window, BERLIN) == datetime(
        2026, 10, 25, 1, 30, tzinfo=UTC
    )


def test_a_wall_time_keeps_its_place_on_the_clock_over_a_change():
    """Case E11. 09:00 in Berlin is 08:00Z on 28 March and 07:00Z from the 29th on.

    So is the end of quiet hours that is worked out the evening before. Fails when an offset is kept instead of the
    name of the zone.
    """
    days = [datetime(2026, 3, day, 9) for day in (28, 29, 30)]  # noqa: DTZ001  wall times
    assert [instant(day, BERLIN).hour for day in days] == [8, 7, 7]
    window = Window.parse("22:00", "09:00")
    assert release_at(at("2026-03-28T22:30:00"), window, BERLIN) == datetime(2026, 3, 29, 7, tzinfo=UTC)
    assert release_at(at("2026-10-24T22:30:00"), window, BERLIN) == datetime(2026, 10, 25, 8, tzinfo=UTC)


def test_a_window_longer_than_the_day_that_is_left_holds_over_the_next_day():
    """Loud only from 02:30 to 03:00, which do not exist on 29 March: held until the 30th, and not lost."""
    window = Window.parse("03:00", "02:30")
    assert release_at(at("2026-03-28T12:00:00"), window, BERLIN) == at("2026-03-30T02:30:00")


@pytest.mark.parametrize(
    "name",
    ["http://x.example", "../../etc/passwd", "/etc/localtime", "", "leapseconds", "Mars/Phobos", "UTC+3",
     "Factory", "localtime", "europe/berlin", "Europe/Berlin\0", "Europe"],
)  # fmt: skip
def test_what_is_no_zone_is_refused_without_a_look_at_any_file(name, monkeypatch):
    """Case E05. A name is looked up in the list of zones; only one that is there is ever opened."""
    zone("UTC")
    monkeypatch.setattr("app.domain.zones.ZoneInfo", lambda key: pytest.fail(f"opened {key}"))
    with pytest.raises(UnknownZoneError):
        zone(name)


def test_the_first_zone_that_is_one_counts():
    """Device before user before tenant before UTC; a name that is gone is passed over."""
    assert zone_or(iter([None, "Asia/Tokyo", "Europe/Berlin"])).key == "Asia/Tokyo"
    assert zone_or(iter(["Gone/Away", "Europe/Berlin"])).key == "Europe/Berlin"
    assert zone_or(iter([None, None])).key == "UTC"


def test_high_priority_and_mandatory_categories_pass():
    """Whatever person and tenant said. Fails when the check of either is left out."""
    wish = QuietWish(categories=None)
    news, security = category_policy("news"), category_policy("security")
    assert quiet_window(wish, news, TENANT, Channel.SMS, Priority.HIGH).rule is QuietRule.HIGH_PRIORITY
    assert quiet_window(wish, security, TENANT, Channel.SMS).rule is QuietRule.MANDATORY
    assert quiet_window(wish, news, TENANT, Channel.SMS).window == DEFAULT_WINDOW


def test_marketing_keeps_quiet_by_default_where_it_would_ring():
    """22:00 to 08:00 for PUSH and SMS; mail and inbox wake nobody."""
    marketing = category_policy("marketing")
    found = {channel: quiet_window(None, marketing, TENANT, channel) for channel in Channel}
    assert found[Channel.PUSH].window == found[Channel.SMS].window == DEFAULT_WINDOW
    assert found[Channel.PUSH].rule is QuietRule.DEFAULT
    assert found[Channel.EMAIL].window is found[Channel.IN_APP].window is None
    assert quiet_window(None, category_policy("news"), TENANT, Channel.PUSH).rule is QuietRule.NONE


def test_what_a_person_says_about_quiet_hours_goes_before_what_the_tenant_says():
    """Their hours, their channels, their categories; and off is off. The tenant's rule uses their hours too."""
    marketing = category_policy("marketing", quiet={"EMAIL": True})
    own = Window.parse("20:00", "10:00")
    wish = QuietWish(window=own, channels=frozenset({"PUSH"}), categories=frozenset({"news"}))
    found = quiet_window(wish, category_policy("news"), TENANT, Channel.PUSH)
    assert (found.window, found.rule) == (own, QuietRule.USER)
    found = quiet_window(wish, marketing, TENANT, Channel.EMAIL)
    assert (found.window, found.rule) == (own, QuietRule.TENANT_CATEGORY)
    assert quiet_window(wish, category_policy("news"), TENANT, Channel.SMS).window is None
    assert quiet_window(QuietWish(is_on=False), marketing, TENANT, Channel.PUSH).rule is QuietRule.USER_OFF


def test_what_the_tenant_declared_goes_before_our_defaults():
    """A category's word before the tenant's general one, and both before ours."""
    loud = category_policy("marketing", quiet={"PUSH": False})
    assert quiet_window(None, loud, TENANT, Channel.PUSH).window is None
    assert quiet_window(None, loud, TENANT, Channel.SMS).rule is QuietRule.DEFAULT
    general = TenantPolicy(quiet={"*": True, "SMS": False}, window=Window.parse("21:00", "07:00"))
    assert quiet_window(None, category_policy("news"), general, Channel.EMAIL).window == general.window
    assert quiet_window(None, category_policy("marketing"), general, Channel.SMS).window is None


def test_held_over_a_day_is_still_the_next_end():
    """A year of evenings: each is released on the morning after, at the hour on the wall."""
    for day in range(365):
        evening = datetime(2026, 1, 1, 22, 30) + timedelta(days=day)  # noqa: DTZ001  a wall time
        found = release_at(instant(evening, BERLIN), DEFAULT_WINDOW, BERLIN)
        assert found is not None
        assert found.astimezone(BERLIN).replace(tzinfo=None) == evening + timedelta(hours=9.5)
