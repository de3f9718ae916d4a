"""The back-off: its bounds, for any attempt, any draw, and anything that a provider may ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.retry import RetryPolicy, delay_seconds

POLICY = RetryPolicy()
attempts = st.integers(1, 100_000)
draws = st.floats(0, 1, exclude_max=True)
asked = st.one_of(st.floats(), st.integers(-(10**9), 10**9).map(float))


@given(attempts, draws)
def test_the_wait_is_exponential_within_its_jitter_and_never_above_the_cap(attempt, draw):
    """Base 2 s doubling, ± 25 %, and then the cap of 5 min. Fails when the jitter is applied after the cap."""
    wait = delay_seconds(attempt, attempt + 1, POLICY, draw=lambda: draw)
    plain = POLICY.base_seconds * 2.0 ** min(attempt - 1, 1000)
    assert wait is not None
    assert wait <= POLICY.cap_seconds
    assert wait >= min(0.75 * plain, POLICY.cap_seconds)
    assert wait <= 1.25 * plain


@pytest.mark.parametrize(("attempt", "plain"), [(1, 2), (2, 4), (3, 8), (4, 16), (5, 32)])
def test_the_ladder_is_as_documented(attempt, plain):
    """2, 4, 8, 16, 32 s in the middle of the jitter; a quarter less and a quarter more at its ends."""
    assert delay_seconds(attempt, 6, POLICY, draw=lambda: 0.5) == plain
    assert delay_seconds(attempt, 6, POLICY, draw=lambda: 0.0) == 0.75 * plain
    assert delay_seconds(attempt, 6, POLICY, draw=lambda: 1.0) == 1.25 * plain


@given(attempts, st.integers(1, 100_000))
def test_no_wait_once_the_attempts_are_used_up(attempt, allowed):
    """None exactly from the last allowed attempt on, also if the provider asks to come back."""
    for retry_after in (None, 1.0):
        assert (delay_seconds(attempt, allowed, POLICY, retry_after) is None) == (attempt >= allowed)


@given(attempts, draws, asked)
def test_retry_after_is_a_floor_that_is_clamped(attempt, draw, retry_after):
    """Case I03 in part. Never before the second that the provider named, never much more than an hour later.

    A negative number, a NaN and an infinity are as harmless as none.
    """
    wait = delay_seconds(attempt, attempt + 1, POLICY, retry_after, draw=lambda: draw)
    plain = delay_seconds(attempt, attempt + 1, POLICY, draw=lambda: draw)
    assert wait is not None
    assert plain is not None
    assert plain <= wait <= max(plain, POLICY.retry_after_cap_seconds * (1 + POLICY.jitter))
    if 0 <= retry_after <= POLICY.retry_after_cap_seconds:
        assert wait >= retry_after


@given(st.lists(st.just(120.0), min_size=50, max_size=50))
def test_a_shared_retry_after_is_spread(asks):
    """A crowd that was told the same second does not come back in the same millisecond."""
    waits = {delay_seconds(1, 6, POLICY, ask) for ask in asks}
    assert len(waits) > 40
