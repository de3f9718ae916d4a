"""Windows of requests on a real Valkey: exact at their edges, over broken keys, and under racing threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.limits.client import make_redis
from app.limits.requests import Quota, RequestWindows
from tests.limits_clock import START, ClockedRequestWindows, without_ttl

MINUTE = Quota(100, 60.0, 2.0)
KEY = "arauto:limit:{u}"


def take(windows, count, quota=MINUTE):
    """Ask `count` times for one; return how many were granted."""
    return sum(windows.take("u", quota).granted for _ in range(count))


def test_no_window_across_an_edge_holds_more_than_the_limit(redis_client):
    """A hundred at the end of a minute leave none for the beginning of the next one.

    Fails for two fixed windows: they let a second hundred through a moment after the edge; and for weighted ones,
    which let more through as the second minute passes.
    """
    windows = ClockedRequestWindows(redis_client)
    windows.now = START // 60_000_000 * 60_000_000 + 59_900_000
    assert take(windows, 150) == 100
    windows.advance(0.2)
    assert take(windows, 10) == 0
    windows.advance(59.7)
    assert take(windows, 10) == 0, "59.9 s after the burst"
    windows.advance(2.1)
    assert take(windows, 150) == 100, "a minute and one slot after it"


def test_what_is_told_is_true(redis_client):
    """What is left counts down, and after the time that is told the next request is granted and not before."""
    windows = ClockedRequestWindows(redis_client)
    quota = Quota(3, 60.0, 2.0)
    assert [windows.take("u", quota).left for _ in range(3)] == [2, 1, 0]
    windows.advance(30.0)
    refused = windows.take("u", quota)
    assert refused.granted == 0
    assert 30.0 <= refused.back_in_seconds <= 32.0
    windows.advance(refused.back_in_seconds - 0.001)
    assert windows.take("u", quota).granted == 0
    windows.advance(0.001)
    assert windows.take("u", quota).granted == 1


def test_a_refused_request_uses_up_nothing(redis_client):
    """A client that goes on knocking is served again at the same moment as one that waits."""
    windows = ClockedRequestWindows(redis_client)
    take(windows, 100)
    for _ in range(60):
        windows.advance(1.0)
        if windows.now < START + 60_000_000:
            assert windows.take("u", MINUTE).granted == 0
    windows.advance(2.0)
    assert take(windows, 150) == 100


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([1, 3_000, 9_000, 21_000, 50_000, 400_000]),
            st.integers(1, 8),
            st.sampled_from([0.0, 1.0]),
        ),
        min_size=60,
        max_size=200,
    )
)
@settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_is_asked_when_no_sliding_window_holds_more(redis_client, steps):
    """Any calls, any pauses, several at once and used at any moment of their hold: 10 in any second at most.

    Fails when an expiry is rounded down, or does not count the hold.
    """
    redis_client.flushdb()
    windows = ClockedRequestWindows(redis_client)
    quota = Quota(10, 1.0, 0.05, 0.04)
    used = []
    for pause, want, moment in steps:
        windows.now += pause
        granted = windows.take("u", quota, want).granted
        used += [windows.now + round(moment * 40_000)] * granted
    used.sort()
    for start in used:
        assert sum(start <= instant < start + 1_000_000 for instant in used) <= 10


@pytest.mark.parametrize(
    "damage",
    [
        lambda client: client.set(KEY, 999_999),
        lambda client: client.set(KEY, b"\xc1\xff\x00"),
        lambda client: client.set(KEY, b""),
        lambda client: client.set(KEY, b"\x92\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00\x05"),
        lambda client: client.set(KEY, b"\x91\x05"),
        lambda client: client.set(KEY, b"\x92\xa1x\xa1y"),
        lambda client: client.persist(KEY),
        lambda client: (client.delete(KEY), client.hset(KEY, "a", 1)),
        lambda client: (client.delete(KEY), client.rpush(KEY, 1)),
        lambda client: client.script_flush(),
        lambda client: client.flushall(),
    ],
)
def test_a_broken_window_is_repaired_by_the_next_call(redis_client, damage):
    """Case A21. A counter without a time to live, or one that is none of ours, blocks nobody beyond its window.

    Fails when the time to live is set only for a new key, or a content that cannot be read raises.
    """
    windows = ClockedRequestWindows(redis_client)
    take(windows, 100)
    damage(redis_client)
    taken = windows.take("u", MINUTE)
    assert 0 <= taken.back_in_seconds <= 62.0
    assert not without_ttl(redis_client)
    assert redis_client.pttl(KEY) <= 65_000
    windows.advance(62.0)
    assert windows.take("u", MINUTE).granted == 1


def test_a_clock_that_steps_back_blocks_for_two_windows_at_most(redis_client):
    """Case A21. What was written under a clock an hour ahead counts for nothing when the clock is put right."""
    windows = ClockedRequestWindows(redis_client)
    windows.now += 3_600_000_000
    take(windows, 100)
    windows.now -= 3_600_000_000
    assert windows.take("u", MINUTE).granted == 1


def test_racing_threads_get_exactly_the_limit(redis_url):
    """Eight threads and clients, 400 calls, on the server's own clock: 100 are granted."""
    start = threading.Barrier(8)

    def ask(_):
        windows = RequestWindows(make_redis(redis_url))
        start.wait()
        return take(windows, 50)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(8))) == 100


def test_windows_are_apart(redis_client):
    """By name; and each lives no longer than it counts."""
    windows = ClockedRequestWindows(redis_client)
    take(windows, 100)
    assert windows.take("v", MINUTE).granted == 1
    windows.take("w", Quota(5, 1.0, 0.025, 0.025), 3)
    assert redis_client.pttl("arauto:limit:{w}") <= 1_100
