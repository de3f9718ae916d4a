"""The rate limiter on a real Valkey: in real time, under two threads, and over keys that someone broke (A21)."""

import threading
import time

import pytest

from app.domain.kinds import Channel, Priority
from app.limits.client import make_redis
from app.limits.rate import RateLimiter
from tests.limits_clock import ClockedRateLimiter, without_ttl, worst_second
from tests.waiting import eventually

STATE = "arauto:rate:{p:SMS}"
WINDOW = f"{STATE}:window"


def test_two_pollers_in_real_time_use_the_limit_and_never_pass_it(redis_url):
    """Two threads with a LOW backlog behind 500/s, on the server's own clock: 475 a second or more, at most 500.

    Grants are stamped by this process right after the answer; the few milliseconds by which an answer may be
    late are allowed for at the edges of a second.
    """
    grants: list[tuple[int, int]] = []
    lock, end = threading.Lock(), time.monotonic() + 6.0

    def poll() -> None:
        limiter, pause = RateLimiter(make_redis(redis_url)), threading.Event()
        while time.monotonic() < end:
            grant = limiter.take("p", Channel.SMS, Priority.LOW, 100, 500)
            with lock:
                grants.append((time.monotonic_ns() // 1000, grant.granted))
            pause.wait(grant.wait_seconds)

    pollers = [threading.Thread(target=poll) for _ in range(2)]
    for poller in pollers:
        poller.start()
    for poller in pollers:
        poller.join()
    grants.sort()
    first = grants[0][0]
    steady = [(instant, tokens) for instant, tokens in grants if instant >= first + 1_000_000]
    assert sum(tokens for _, tokens in steady) >= 0.95 * 500 * (steady[-1][0] - steady[0][0]) / 1_000_000
    squeezed = [(round(instant * 1.05), tokens) for instant, tokens in grants]
    assert worst_second(squeezed) <= 500


def test_limits_are_apart_for_providers_and_channels(redis_client):
    """A used-up limit of one provider and channel leaves all others whole; 0 means no limit and asks nobody."""
    limiter = ClockedRateLimiter(redis_client)
    assert limiter.take("a", Channel.SMS, Priority.HIGH, 9, 1).granted == 1
    assert limiter.take("a", Channel.SMS, Priority.HIGH, 9, 1).granted == 0
    assert limiter.take("a", Channel.EMAIL, Priority.HIGH, 1, 1).granted == 1
    assert limiter.take("b", Channel.SMS, Priority.HIGH, 1, 1).granted == 1
    redis_client.flushall()
    assert limiter.take("a", Channel.IN_APP, Priority.LOW, 5000, 0).granted == 5000
    assert not redis_client.keys()


def test_a_pause_stops_every_priority_and_starts_without_a_burst(redis_client):
    """Case G19. Case H01. While an account is throttled nobody sends; afterwards the flow begins from nothing."""
    limiter = ClockedRateLimiter(redis_client)
    limiter.take("p", Channel.SMS, Priority.LOW, 1, 500)
    limiter.pause("p", Channel.SMS, 2.0)
    limiter.pause("p", Channel.SMS, 0.5)  # A shorter one does not end it.
    for priority in Priority:
        grant = limiter.take("p", Channel.SMS, priority, 10, 500)
        assert grant.granted == 0
        assert grant.wait_seconds == pytest.approx(2.0)
    assert limiter.take("p", Channel.EMAIL, Priority.LOW, 10, 500).granted == 10
    limiter.advance(1.99)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 10, 500).granted == 0
    limiter.advance(0.02)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 500).granted <= 6
    limiter.advance(1.0)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 500).granted > 40
    assert not without_ttl(redis_client)


@pytest.mark.parametrize(
    ("asked", "longest"),
    [(999_999.0, 3600.0), (float("inf"), 3600.0), (-5.0, 0.0), (float("nan"), 0.0), (0.0, 0.0)],
)
def test_a_pause_is_bounded(redis_client, asked, longest):
    """Case I03. `Retry-After: 999999` stops an account for an hour, not for days; nonsense stops nothing."""
    limiter = ClockedRateLimiter(redis_client)
    limiter.pause("p", Channel.PUSH, asked)
    grant = limiter.take("p", Channel.PUSH, Priority.HIGH, 1, 500)
    assert grant.granted == (0 if longest else 1)
    assert grant.wait_seconds == pytest.approx(longest)


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.set(STATE, 999_999),
        lambda c: c.set(WINDOW, "x"),
        lambda c: (c.set(STATE, 1), c.set(WINDOW, 1)),
        lambda c: (c.persist(STATE), c.persist(WINDOW)),
        lambda c: c.delete(STATE),
        lambda c: c.delete(WINDOW),
        lambda c: c.hset(STATE, "used", 999_999),
        lambda c: c.hset(STATE, "used", "nan"),
        lambda c: c.hset(STATE, "level", "-inf"),
        lambda c: c.hset(STATE, "level", -999_999_999_999),
        lambda c: c.hset(STATE, "level", "1e300"),
        lambda c: c.hset(STATE, "at", 9_999_999_999_999_999),
        lambda c: c.hset(STATE, "at", "soon"),
        lambda c: c.hset(STATE, "paused", 9_999_999_999_999_999),
        lambda c: c.hset(STATE, "urgent", 9_999_999_999_999_999),
        lambda c: c.rpush(WINDOW, "junk"),
        lambda c: c.lpush(WINDOW, "9999999999999999:5"),
        lambda c: c.lpush(WINDOW, "1:999999"),
        lambda c: c.script_flush(),
        lambda c: c.flushall(),
    ],
)
def test_broken_keys_are_repaired_and_block_nobody_for_longer_than_a_second(redis_client, damage):
    """Case A21. After any damage the next calls answer, give each key a time to live, and grant again in 1.1 s.

    Fails when a sum that disagrees with an empty window is believed, or a wrong type raises.
    """
    limiter = ClockedRateLimiter(redis_client)
    grants = []
    for _ in range(50):
        limiter.advance(0.03)
        grants.append((limiter.now, limiter.take("p", Channel.SMS, Priority.LOW, 100, 100).granted))
    damage(redis_client)
    damaged_at = limiter.now
    after = []
    for _ in range(75):
        grant = limiter.take("p", Channel.SMS, Priority.LOW, 100, 100)
        assert grant.wait_seconds <= 1.1
        assert not without_ttl(redis_client)
        after.append((limiter.now, grant.granted))
        limiter.advance(0.03)
    assert worst_second(after) <= 100
    first = next(instant for instant, tokens in after if tokens)
    assert first <= damaged_at + 1_100_000
    settled = [tokens for instant, tokens in after if instant >= damaged_at + 1_200_000]
    assert sum(settled) >= 0.9 * 100 * 0.03 * len(settled)


def test_a_clock_that_steps_back_stops_nothing_for_longer_than_a_second(redis_client):
    """An hour back on the server's clock: grants go on within a second, within the limit, and no key lives on."""
    limiter = ClockedRateLimiter(redis_client)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 5).granted
    limiter.advance(-3600)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 5).granted == 0
    limiter.advance(1.1)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 5).granted >= 1
    limiter.advance(-0.2)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 5).wait_seconds <= 1.1


def test_the_servers_clock_counts_not_the_callers(redis_client):
    """Without an override the script asks the server: a second later there are tokens again."""
    limiter = RateLimiter(redis_client)
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 2).granted == 2
    assert limiter.take("p", Channel.SMS, Priority.HIGH, 100, 2).granted == 0
    eventually(lambda: limiter.take("p", Channel.SMS, Priority.HIGH, 100, 2).granted, seconds=3)
