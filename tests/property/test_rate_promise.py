"""The rate limiter's promise for arbitrary callers: the Lua script itself, on a real Valkey, under a set clock."""

import itertools
from heapq import heapify, heappop, heappush
from random import Random

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.domain.kinds import Channel, Priority
from tests.limits_clock import START, ClockedRateLimiter, worst_second

limits = st.sampled_from([1, 2, 3, 5, 7, 10, 49, 50, 100, 500, 2000])
gaps = st.one_of(
    st.sampled_from([0, 1, 3_999, 4_000, 999_999, 1_000_000, 1_000_001]),
    st.integers(0, 50_000),
    st.integers(0, 2_500_000),
)
takes = st.lists(st.tuples(gaps, st.sampled_from(Priority), st.integers(1, 3_000)), min_size=1, max_size=60)
_examples = itertools.count()
on_valkey = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _fresh(client: "redis.Redis") -> tuple[ClockedRateLimiter, str]:
    return ClockedRateLimiter(client), f"provider{next(_examples)}"


@on_valkey
@example(limit=1, calls=[(3_999, Priority.HIGH, 1), (999_999, Priority.HIGH, 1)])
@given(limit=limits, calls=takes)
def test_no_sliding_second_ever_passes_the_limit(redis_client, limit, calls):
    """Whoever asks, whenever, for however much: no second holds more than the limit, its two ends included.

    Fails when the window of grants is ignored (`free = limit`), and when expiries are rounded down.
    """
    limiter, provider = _fresh(redis_client)
    grants = []
    for gap, priority, want in calls:
        limiter.now += gap
        grant = limiter.take(provider, Channel.SMS, priority, want, limit)
        assert 0 <= grant.granted <= want
        assert (grant.wait_seconds == 0) == (grant.granted == want)
        assert grant.wait_seconds <= 2.2
        if grant.granted:
            grants.append((limiter.now, grant.granted))
    assert worst_second(grants) <= limit


@on_valkey
@given(
    limit=st.sampled_from([200, 500, 2000]),
    calls=st.lists(
        st.tuples(gaps, st.sampled_from([Priority.NORMAL, Priority.LOW]), st.integers(1, 3_000)), max_size=60
    ),
)
def test_lower_traffic_never_takes_the_last_tokens(redis_client, limit, calls):
    """After anything that NORMAL and LOW did, HIGH gets a token at once; LOW alone leaves one to NORMAL too.

    Fails when every priority may take every token (RESERVE_PERCENT all 0).
    """
    limiter, provider = _fresh(redis_client)
    for gap, priority, want in calls:
        limiter.now += gap
        limiter.take(provider, Channel.SMS, priority, want, limit)
    if all(priority is Priority.LOW for _, priority, _ in calls):
        assert limiter.take(provider, Channel.SMS, Priority.NORMAL, 1, limit).granted == 1
    assert limiter.take(provider, Channel.SMS, Priority.HIGH, 1, limit).granted == 1


@on_valkey
@given(limit=limits, priority=st.sampled_from(Priority), calls=takes)
def test_asking_again_after_the_wait_brings_something(redis_client, limit, priority, calls):
    """`wait_seconds` is worth waiting for: a lone caller that comes back then is granted at least one token."""
    limiter, provider = _fresh(redis_client)
    for gap, _, want in calls:
        limiter.now += gap
        grant = limiter.take(provider, Channel.SMS, priority, want, limit)
        if grant.granted < want:
            limiter.now += round(grant.wait_seconds * 1_000_000)
            assert limiter.take(provider, Channel.SMS, priority, want, limit).granted >= 1


@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize("limit", [1, 5, 20, 50, 500])
def test_late_callers_still_use_the_limit(redis_client, limit, priority):
    """Two callers with a backlog, 10 to 30 ms late in every tenth round: at least 95 % is used at any priority."""
    limiter, provider = _fresh(redis_client)
    random, seconds = Random(7), 22
    callers = [(START, 1), (START, 2)]
    heapify(callers)
    grants = []
    while callers:
        now, caller = heappop(callers)
        if now >= START + seconds * 1_000_000:
            continue
        limiter.now = now
        grant = limiter.take(provider, Channel.SMS, priority, 100, limit)
        if grant.granted:
            grants.append((now, grant.granted))
        late = random.uniform(0.0005, 0.005) + (random.uniform(0.01, 0.03) if random.random() < 0.1 else 0.0)
        heappush(callers, (now + round((grant.wait_seconds + late) * 1_000_000), caller))
    assert worst_second(grants) <= limit
    steady = sum(tokens for instant, tokens in grants if instant >= START + 2_000_000)
    assert steady >= 0.95 * limit * (seconds - 2)


@pytest.mark.parametrize("limit", [1, 5, 50, 500])
def test_a_flood_of_low_does_not_hold_up_high(redis_client, limit):
    """HIGH that asks for half the limit beside a LOW flood gets it, with waits of at most about one token's time.

    Fails at 1 and 5 a second when a HIGH caller that was refused is not first in line (`urgent` never set).
    """
    limiter, provider = _fresh(redis_client)
    step, waits, high_since = 5_000, [], None
    random = Random(3)
    interval = 2_000_000 // limit
    next_high, low_at, high_at = START + 3_000_000, START, START
    for tick in range(6_000):
        limiter.now = START + tick * step
        if high_since is None and limiter.now >= next_high:
            high_since, high_at = limiter.now, limiter.now
            next_high += max(interval, step)
        if limiter.now >= low_at:
            wait = limiter.take(provider, Channel.SMS, Priority.LOW, 100, limit).wait_seconds
            low_at = limiter.now + round(wait * 1_000_000)
        if high_since is not None and limiter.now >= high_at:
            grant = limiter.take(provider, Channel.SMS, Priority.HIGH, 1, limit)
            high_at = limiter.now + round((grant.wait_seconds + random.uniform(0, 0.03)) * 1_000_000)
            if grant.granted:
                waits.append((limiter.now - high_since) / 1_000_000)
                high_since = None
    assert len(waits) >= 5
    assert max(waits) <= 1.1 / limit + 0.1 if limit > 1 else max(waits) <= 1.1
