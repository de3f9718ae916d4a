"""Identifiers: version and variant, order by time, and the ranges that let a look-up read one partition."""

from datetime import UTC, date, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.ids import day_floor, day_range, mint, mint_text, minted_at, siblings

LAST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000)
milliseconds = st.integers(0, LAST)
days = st.dates(date(1970, 1, 1), date(9999, 12, 30))


@given(milliseconds, st.integers(1, 5))
def test_an_id_is_a_uuid_of_version_7_that_tells_its_millisecond(now, count):
    """Version and variant bits stand where RFC 9562 puts them, and the instant comes out as it went in."""
    for one in mint(count, now):
        assert one.version == 7
        assert one.variant == RFC_4122
        assert one.int >> 80 == now
        assert abs(minted_at(one) - (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now))) < timedelta(
            milliseconds=1
        )


@given(milliseconds, milliseconds)
def test_ids_sort_by_time(one, other):
    """An id of an earlier millisecond is smaller, as a number and as text: PostgreSQL and Python agree."""
    first, second = mint(1, one)[0], mint(1, other)[0]
    if one != other:
        assert (first < second) == (one < other)
        assert (str(first) < str(second)) == (one < other)


def test_ids_of_one_call_are_distinct():
    """Ten thousand ids of the same millisecond: 74 random bits each, none alike."""
    assert len(set(mint(10_000))) == 10_000
    assert mint(0) == []


def test_an_id_carries_the_time_of_now():
    """Without a given time the clock of the process counts."""
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert before <= minted_at(mint()[0]) <= datetime.now(UTC)


@given(milliseconds)
def test_siblings_hold_all_ids_of_the_millisecond_and_no_other(now):
    """A notification and its deliveries lie between the bounds; the neighbours in time lie outside."""
    low, high = siblings(mint(1, now)[0])
    assert all(low <= one <= high for one in mint(3, now))
    assert mint(1, now + 1)[0] > high
    if now:
        assert mint(1, now - 1)[0] < low


@given(st.lists(st.uuids() | milliseconds.map(lambda now: mint(1, now)[0]), min_size=1, max_size=5))
def test_day_range_holds_every_id_that_was_asked_for(identifiers):
    """Whatever UUIDs somebody makes up: the bounds hold them all (the last day that an id can tell: its start)."""
    low, high = day_range(identifiers)
    assert low <= min(identifiers)
    assert max(identifiers) < high or high.int >> 80 == 2**48 - 1
    assert low < high or high.int >> 80 == 2**48 - 1
    assert siblings(identifiers[0])[0] <= identifiers[0] <= siblings(identifiers[0])[1]


@given(days)
def test_day_range_of_one_day_is_that_days_partition(day):
    """The bounds of ids of one day are the bounds of its partition: from its floor to the next day's."""
    first = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    identifiers = mint(1, first) + mint(1, first + 86_399_999)
    assert day_range(identifiers) == (day_floor(day), day_floor(day + timedelta(days=1)))
    assert day_range(identifiers[:1]) == day_range(identifiers[1:])
    assert minted_at(identifiers[0]).date() == minted_at(identifiers[1]).date() == day


def test_an_instant_beyond_the_calendar_is_a_value_error():
    """An id that somebody made up may lie past the year 9999; asking for its instant says so."""
    with pytest.raises(ValueError, match="year"):
        minted_at(UUID(int=2**128 - 1))


@given(milliseconds, st.integers(1, 20))
def test_ids_as_text_are_ids(now, count):
    """What the accepting request mints is what `mint` mints, written out and in order."""
    texts = mint_text(count, now)
    identifiers = [UUID(text) for text in texts]
    assert [str(each) for each in identifiers] == texts == sorted(texts)
    assert len(set(texts)) == count
    for each in identifiers:
        assert (each.version, each.variant, each.int >> 80) == (7, RFC_4122, now)
