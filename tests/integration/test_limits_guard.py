"""The guard, the countdown places and the crash counter on a real Valkey."""

from uuid import uuid4

import pytest
import redis

from app.limits.countdowns import CountdownSlots
from app.limits.crashes import CrashCounter
from app.limits.guard import Guard
from tests.limits_clock import ClockedCountdownSlots, without_ttl

A, B, C = (str(uuid4()) for _ in range(3))


def test_guard_orders_claims_by_their_token(redis_client):
    """A higher token takes a mark over; an equal or lower one is refused; each id of a batch is judged alone.

    Fails under a plain NX guard: a killed worker's mark would refuse the next claim for ten minutes.
    """
    guard = Guard(redis_client)
    assert guard.acquire([(A, 1), (B, 5)], "one", 600) == [True, True]
    assert guard.acquire([(A, 2), (B, 5), (C, 1)], "two", 600) == [True, False, True]
    assert guard.acquire([(A, 1), (B, 4)], "three", 600) == [False, False]
    assert guard.acquire([(B, 10)], "three", 600) == [True]
    assert guard.acquire([], "three", 600) == []


def test_guard_refuses_the_same_token_even_to_its_own_worker(redis_client):
    """The same claim twice in one process means that the database forgot the first: it is refused."""
    guard = Guard(redis_client)
    assert guard.acquire([(A, 3)], "one", 600) == [True]
    assert guard.acquire([(A, 3)], "one", 600) == [False]


def test_guard_grants_a_call_that_the_client_repeats(redis_client, monkeypatch):
    """An answer lost on the way back is no second claim: the same call, sent again, is granted."""
    monkeypatch.setattr("app.limits.guard.token_hex", lambda _: "cafecafe")
    guard = Guard(redis_client)
    assert guard.acquire([(A, 3)], "one", 600) == [True]
    assert guard.acquire([(A, 3)], "one", 600) == [True]


def test_guard_releases_only_its_own_mark(redis_client):
    """A late release of a claim that was taken over frees nothing, nor does another worker's."""
    guard = Guard(redis_client)
    guard.acquire([(A, 1), (B, 1)], "one", 600)
    guard.acquire([(A, 2)], "two", 600)
    guard.release([(A, 1), (B, 1)], "one")
    guard.release([(A, 2)], "on")
    assert guard.acquire([(A, 2)], "three", 600) == [False]
    assert guard.acquire([(B, 1)], "three", 600) == [True]
    guard.release([(A, 2)], "two")
    assert guard.acquire([(A, 1)], "four", 600) == [True]
    guard.release([], "four")


def test_guard_marks_end_by_themselves_and_broken_ones_are_repaired(redis_client):
    """Case A21. A mark without a time to live gets one at the next refusal; what is no mark is written over."""
    guard = Guard(redis_client)
    key = f"arauto:{{guard}}:{A}"
    guard.acquire([(A, 7)], "one", 600)
    assert 590_000 < redis_client.pttl(key) <= 600_000
    redis_client.persist(key)
    assert guard.acquire([(A, 7)], "two", 600) == [False]
    assert 0 < redis_client.pttl(key) <= 600_000
    for broken in ("junk", "", "9e9:x", ":one:"):
        redis_client.set(key, broken)
        assert guard.acquire([(A, 1)], "two", 600) == [True]
    redis_client.delete(key)
    redis_client.lpush(key, "x")
    guard.release([(A, 1)], "two")
    assert guard.acquire([(A, 1)], "two", 600) == [True]
    assert not without_ttl(redis_client)


def test_guard_survives_a_server_that_forgot_the_script(redis_client):
    """SCRIPT FLUSH or a restart: the text is sent again."""
    guard = Guard(redis_client)
    guard.acquire([(A, 1)], "one", 600)
    redis_client.script_flush()
    assert guard.acquire([(B, 1)], "one", 600) == [True]


def test_guard_lets_errors_of_redis_through():
    """The caller must know that nothing was marked: it gives the claims back."""
    with redis.Redis(port=1, retry=None) as nowhere, pytest.raises(redis.RedisError):
        Guard(nowhere).acquire([(A, 1)], "one", 600)


def test_countdown_places_are_bounded_and_free_themselves_when_due(redis_client):
    """No more places than the limit, given in order; a due one is free again, whatever became of its countdown."""
    slots = ClockedCountdownSlots(redis_client, limit=3)
    assert slots.reserve("low", 2, [10, 20]) == [True, True]
    assert slots.reserve("low", 3, [30, 40, 50]) == [True, False, False]
    assert slots.reserve("high", 1, [60]) == [True]
    slots.advance(10.001)
    assert slots.reserve("low", 2, [5, 5]) == [True, False]
    slots.advance(21)
    assert slots.reserve("low", 4, [5] * 4) == [True, True, True, False]
    assert slots.reserve("low", 0, []) == []
    assert not without_ttl(redis_client)


def test_countdown_places_survive_wrong_keys_times_and_arguments(redis_client):
    """Case A21. A wrong type is replaced, a due time of a stepped clock dropped, a wrong count refused."""
    slots = ClockedCountdownSlots(redis_client, limit=1)
    redis_client.set("arauto:countdown:{low}", 999_999)
    assert slots.reserve("low", 1, [10]) == [True]
    slots.advance(-7200)
    assert slots.reserve("low", 1, [-4]) == [True]
    redis_client.persist("arauto:countdown:{low}")
    slots.advance(0.001)
    assert slots.reserve("low", 1, [float("inf")]) == [True]
    assert not without_ttl(redis_client)
    with pytest.raises(ValueError, match="2 countdowns, but 1"):
        slots.reserve("low", 2, [1.0])
    assert CountdownSlots(redis_client, limit=0).reserve("normal", 2, [1, 1]) == [False, False]
    assert CountdownSlots(redis_client, limit=1).reserve("normal", 2, [1, 1]) == [True, False]


def test_crash_counter_counts_starts_that_never_finished(redis_client):
    """Case A07 in part. Starts add up over workers until the work ends; the count itself ends after an hour."""
    counter = CrashCounter(redis_client)
    assert counter.started([A, B]) == [1, 1]
    assert CrashCounter(redis_client).started([A]) == [2]
    counter.finished([A])
    assert counter.started([A, B]) == [1, 2]
    assert 3_590_000 < redis_client.pttl(f"arauto:{{crash}}:{A}") <= 3_600_000
    assert counter.started([]) == []
    counter.finished([])


@pytest.mark.parametrize("value", ["junk", "-7", "9223372036854775807"])
def test_crash_counter_repairs_broken_counts(redis_client, value):
    """Case A21. A count that is none starts at one again, with a time to live; so does a wrong type."""
    key = f"arauto:{{crash}}:{A}"
    redis_client.set(key, value)
    assert CrashCounter(redis_client).started([A]) == [1]
    redis_client.delete(key)
    redis_client.lpush(key, value)
    assert CrashCounter(redis_client).started([A]) == [1]
    assert not without_ttl(redis_client)
