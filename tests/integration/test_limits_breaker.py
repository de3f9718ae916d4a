"""The circuit breaker on a real Valkey, under a clock that the test sets."""

import threading

import pytest

from app.domain.kinds import Priority
from app.limits.breaker import Breaker, BreakerRules
from tests.limits_clock import ClockedBreaker, without_ttl
from tests.waiting import eventually

KEY = "arauto:{breaker}:p"
RULES = BreakerRules(probes=2)


@pytest.fixture
def breaker(redis_client) -> ClockedBreaker:
    return ClockedBreaker(redis_client, RULES)


def _open(breaker: ClockedBreaker) -> None:
    breaker.report("p", ok=0, failed=20, refused=0, probes=0)
    assert breaker.snapshot() == {"p": "open"}


def test_it_opens_at_half_of_enough_calls_failing(breaker):
    """Nineteen failures are too few to judge by; the twentieth call opens it, for the open time."""
    assert breaker.permit("p", 100, Priority.LOW).granted == 100
    breaker.report("p", ok=0, failed=19, refused=0, probes=0)
    assert breaker.snapshot() == {"p": "closed"}
    breaker.report("p", ok=0, failed=1, refused=0, probes=0)
    permit = breaker.permit("p", 100, Priority.HIGH)
    assert (permit.granted, permit.is_probe, permit.wait_seconds) == (0, False, 30.0)
    assert breaker.permit("q", 100, Priority.HIGH).granted == 100


def test_one_bad_recipient_among_many_does_not_open_it(breaker):
    """A scripted 503 for every third call, however long, keeps it closed."""
    for _ in range(200):
        breaker.advance(0.1)
        breaker.forget()
        breaker.report("p", ok=2, failed=1, refused=0, probes=0)
        assert breaker.permit("p", 1, Priority.LOW).granted == 1


def test_failures_leave_the_window(breaker):
    """What failed more than a window ago counts no longer."""
    breaker.report("p", ok=0, failed=19, refused=0, probes=0)
    breaker.advance(10)
    breaker.report("p", ok=0, failed=1, refused=0, probes=0)
    assert breaker.snapshot() == {"p": "closed"}


def test_refused_connections_in_a_row_open_it(breaker):
    """Five refused connections, in any batches, open it; a success in between starts the count again."""
    breaker.report("p", ok=0, failed=0, refused=4, probes=0)
    breaker.report("p", ok=1, failed=0, refused=1, probes=0)
    breaker.report("p", ok=0, failed=0, refused=4, probes=0)
    assert breaker.snapshot() == {"p": "closed"}
    breaker.report("p", ok=0, failed=0, refused=1, probes=0)
    assert breaker.snapshot() == {"p": "open"}


def test_a_probe_that_works_closes_it(breaker):
    """After the open time a few probes go out, no more, and one success lets everything through."""
    _open(breaker)
    breaker.advance(30)
    assert breaker.snapshot() == {"p": "half_open"}
    first = breaker.permit("p", 100, Priority.LOW)
    assert (first.granted, first.is_probe) == (2, True)
    second = breaker.permit("p", 100, Priority.LOW)
    assert (second.granted, second.is_probe) == (0, False)
    assert 0 < second.wait_seconds <= 0.25
    breaker.report("p", ok=1, failed=0, refused=0, probes=1)
    assert breaker.permit("p", 100, Priority.HIGH).granted == 100
    assert breaker.snapshot() == {"p": "closed"}


def test_probes_that_fail_double_the_open_time_up_to_the_cap(breaker):
    """30 s, 60 s, 120 s, 240 s, then 300 s and no longer; it opens again only when no probe is under way."""
    _open(breaker)
    for wait in (30, 60, 120, 240, 300, 300):
        assert breaker.permit("p", 1, Priority.LOW).wait_seconds == pytest.approx(wait)
        breaker.advance(wait)
        breaker.forget()
        assert breaker.permit("p", 5, Priority.LOW).granted == 2
        breaker.report("p", ok=0, failed=1, refused=0, probes=1)
        assert breaker.snapshot() == {"p": "half_open"}
        breaker.report("p", ok=0, failed=0, refused=1, probes=1)
        breaker.forget()
    breaker.advance(300)
    breaker.permit("p", 1, Priority.LOW)
    breaker.report("p", ok=1, failed=0, refused=0, probes=1)
    _open(breaker)
    assert breaker.permit("p", 1, Priority.LOW).wait_seconds == pytest.approx(30)


def test_high_probes_only_where_there_is_no_lower_traffic(breaker):
    """A one-time code is no guinea pig while NORMAL or LOW asks, and waits for nobody who is not there."""
    _open(breaker)
    breaker.advance(29.9)
    breaker.forget()
    assert breaker.permit("p", 1, Priority.NORMAL).granted == 0
    breaker.advance(0.2)
    breaker.forget()
    refused = breaker.permit("p", 1, Priority.HIGH)
    assert (refused.granted, refused.wait_seconds) == (0, 0.25)
    assert breaker.permit("p", 1, Priority.NORMAL).is_probe
    breaker.give_back("p", 1)
    breaker.advance(1.0)
    assert breaker.permit("p", 1, Priority.HIGH).is_probe


def test_high_probes_when_lower_traffic_asks_but_never_sends(breaker):
    """LOW that takes probes and gives them back must not keep HIGH out for ever."""
    _open(breaker)
    breaker.advance(30)
    probing = False
    for _ in range(30):
        breaker.advance(0.1)
        breaker.forget()
        breaker.permit("p", 1, Priority.LOW)
        breaker.give_back("p", 1)
        probing = probing or breaker.permit("p", 1, Priority.HIGH).is_probe
    assert probing


def test_the_probe_of_a_killed_worker_is_lost_after_a_time(breaker):
    """Probes that never come back block the breaker for the probe time only; a probe given back, not at all."""
    _open(breaker)
    breaker.advance(30)
    assert breaker.permit("p", 9, Priority.LOW).granted == 2
    breaker.give_back("p", 1)
    assert breaker.permit("p", 9, Priority.LOW).granted == 1
    breaker.advance(29.9)
    assert breaker.permit("p", 9, Priority.LOW).granted == 0
    breaker.advance(0.2)
    assert breaker.permit("p", 9, Priority.LOW).granted == 2
    breaker.report("p", ok=0, failed=1, refused=0, probes=1)
    breaker.advance(30.1)
    breaker.forget()
    assert breaker.permit("p", 9, Priority.LOW).wait_seconds == pytest.approx(60)


def test_late_answers_of_calls_before_it_opened_change_nothing(breaker):
    """Neither a success nor a failure of a call that was no probe moves an open breaker."""
    _open(breaker)
    breaker.report("p", ok=50, failed=50, refused=50, probes=0)
    breaker.advance(29)
    breaker.forget()
    assert breaker.permit("p", 1, Priority.LOW).wait_seconds == pytest.approx(1)
    breaker.advance(1)
    breaker.forget()
    breaker.report("p", ok=5, failed=5, refused=0, probes=0)
    assert breaker.snapshot() == {"p": "half_open"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.set(KEY, 999_999),
        lambda c: c.persist(KEY),
        lambda c: c.hset(KEY, "until", 9_999_999_999_999_999),
        lambda c: c.hset(KEY, "until", "later"),
        lambda c: c.hset(KEY, mapping={"out": 999, "lost_at": 9_999_999_999_999_999}),
        lambda c: c.hset(KEY, mapping={"open_for": "nan", "bad": "x", "row": "-1", "lower": "1e99", "n1": "?"}),
        lambda c: c.set("arauto:{breaker}:known", "x"),
        lambda c: c.script_flush(),
        lambda c: c.flushall(),
    ],
)
def test_broken_keys_are_repaired(breaker, redis_client, damage):
    """Case A21. After any damage calls answer, every key ends by itself, and probes go out within the cap."""
    _open(breaker)
    damage(redis_client)
    breaker.forget()
    assert breaker.permit("p", 1, Priority.LOW).wait_seconds <= RULES.open_cap_seconds
    breaker.report("p", ok=1, failed=0, refused=0, probes=0)
    assert not without_ttl(redis_client)
    breaker.advance(RULES.open_cap_seconds)
    breaker.forget()
    permit = breaker.permit("p", 1, Priority.LOW)
    assert permit.granted == 1
    breaker.report("p", ok=1, failed=0, refused=0, probes=int(permit.is_probe))
    assert breaker.permit("p", 99, Priority.LOW).granted == 99


def test_a_closed_breaker_costs_no_round_trip_a_batch(redis_client):
    """A hundred batches within a moment ask the server a few times, not two hundred."""
    breaker = Breaker(redis_client)
    redis_client.config_resetstat()
    for _ in range(100):
        assert breaker.permit("p", 100, Priority.LOW).granted == 100
        breaker.report("p", ok=100, failed=0, refused=0, probes=0)
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] < 40


def test_what_one_worker_learns_all_know_within_a_moment(redis_client):
    """A worker that remembers "closed" hears of the opening after 100 ms; the one that saw it knows at once."""
    one, two = Breaker(redis_client), Breaker(redis_client)
    assert two.permit("p", 1, Priority.LOW).granted == 1
    one.report("p", ok=0, failed=0, refused=5, probes=0)
    assert one.permit("p", 1, Priority.LOW).granted == 0
    eventually(lambda: two.permit("p", 1, Priority.LOW).granted == 0, seconds=2)
    assert 0 < two.permit("p", 1, Priority.LOW).wait_seconds <= 30


def test_probes_stay_bounded_under_racing_workers(redis_client):
    """Twenty threads at the half-open moment get no more probes between them than the rules say."""
    opener = ClockedBreaker(redis_client, RULES)
    _open(opener)
    granted: list[int] = []
    barrier = threading.Barrier(20)

    def ask() -> None:
        breaker = ClockedBreaker(redis_client, RULES)
        breaker.advance(30)
        barrier.wait()
        granted.append(breaker.permit("p", 1, Priority.LOW).granted)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == RULES.probes
