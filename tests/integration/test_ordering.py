"""Ordered deliveries of a user and channel go out one after the other, and what waits is never lost."""

import asyncio
from collections import defaultdict

import pytest

from app.db import ordering
from app.domain.kinds import Channel, Priority
from providers.outcome import Accepted, Rejected, Retry, Scope
from tests import delivery_rows as rows
from tests.carried import Carried
from tests.pipeline_parts import kafka_outlet, read_topic, relay_on, sql
from tests.waiting import eventually, never
from tests.worker_harness import ScriptedProvider

ORDERED = {"order_at": "sql:now()"}


def ordered(engine, count, *, user="42", ago=0.0, **columns):
    """Rows of one user that were due one after the other, the first `ago` seconds back."""
    ids = rows.add(engine, count, user_id=user, **columns)
    for place, id_ in enumerate(ids):
        rows.change(engine, [id_], order_at=f"sql:now() - interval '{ago} s' + interval '{place} ms'")
    return ids


def test_a_later_one_waits_until_the_earlier_one_has_ended(run_worker, engine, database_url):
    """Fails without the look at the load: all of a chunk would be called at once. Costs no attempt."""
    open_now = defaultdict(int)
    most = defaultdict(int)
    order = defaultdict(list)
    owners = {}

    async def slow(message):
        user = owners[message.reference]
        open_now[user] += 1
        most[user] = max(most[user], open_now[user])
        order[user].append(message.reference)
        await asyncio.sleep(0.03)
        open_now[user] -= 1
        return Accepted("id")

    by_user = {user: ordered(engine, 5, user=user) for user in ("a", "b", "c")}
    for user, ids in by_user.items():
        owners.update(dict.fromkeys(ids, user))
    every = [id_ for ids in by_user.values() for id_ in ids]
    with run_worker(ScriptedProvider(slow)) as running, Carried(running, database_url):
        running.park(every[::-1])
        eventually(lambda: rows.statuses(engine, every) == {"SENT": 15}, seconds=30)
    assert dict(most) == {"a": 1, "b": 1, "c": 1}
    assert dict(order) == by_user
    assert {rows.row(engine, id_)["attempts"] for id_ in every} == {1}


def test_a_retry_keeps_its_place(run_worker, engine, database_url):
    """Fails when only a call in flight holds the later one up: it would overtake the back-off of the first."""
    calls = []

    async def once_busy(message):
        calls.append(message.reference)
        return Retry("busy", "busy", scope=Scope.MESSAGE) if len(calls) < 3 else Accepted("id")

    ids = ordered(engine, 3)
    with (
        run_worker(ScriptedProvider(once_busy), retry_base_seconds=0.1) as running,
        Carried(running, database_url),
    ):
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 3}, seconds=40)
    assert calls == [ids[0], ids[0], ids[0], ids[1], ids[2]]


def test_the_bound_frees_the_later_one(run_worker, engine):
    """An earlier one that hangs on past the bound holds nobody up any more; nor does one of another channel."""
    stuck = ordered(engine, 1, ago=61, status="UNKNOWN", uncertain=True)
    other = ordered(engine, 1, ago=5, channel=Channel.EMAIL, status="UNKNOWN", uncertain=True)
    late = ordered(engine, 1)
    with run_worker(ScriptedProvider()) as running:
        running.park(late)
        eventually(lambda: rows.statuses(engine, late) == {"SENT": 1})
    assert rows.statuses(engine, stuck + other) == {"UNKNOWN": 2}


def test_what_waits_is_brought_back_though_nobody_wakes_it(run_worker, engine, database_url):
    """Fails when a waiting row has no time of its own: an earlier one that a cancel ends wakes nobody."""
    first, second = ordered(engine, 2)
    rows.change(engine, [first], status="UNKNOWN", uncertain=True)
    provider = ScriptedProvider()
    with run_worker(provider) as running, Carried(running, database_url):
        running.park([second])
        eventually(lambda: rows.row(engine, second)["status"] == "PENDING")
        waiting = rows.row(engine, second)
        assert waiting["relay_at"] > waiting["next_attempt_at"]
        assert provider.calls == []
        rows.change(engine, [first], status="CANCELLED")
        eventually(lambda: rows.row(engine, second)["status"] == "SENT", seconds=15)


def test_an_end_in_the_gap_between_look_and_wait_is_noticed(run_worker, engine, monkeypatch):
    """Fails without the second look: the earlier one's wake came before there was anything to wake."""
    first, second = ordered(engine, 2)
    rows.change(engine, [first], status="UNKNOWN", uncertain=True)
    real = ordering.wait

    def ended_meanwhile(*arguments):
        rows.change(engine, [first], status="FAILED", error_code="x")
        return real(*arguments)

    monkeypatch.setattr(ordering, "wait", ended_meanwhile)
    with run_worker(ScriptedProvider()) as running:
        running.park([second])
        eventually(lambda: rows.row(engine, second)["status"] == "PENDING")
        eventually(lambda: sql(engine, "SELECT 1 FROM delivery WHERE id = %(i)s AND relay_at <= now()", i=second))


def test_a_wake_hastens_no_retry_and_no_held_row(engine):
    """Fails when a wake sets the due time itself: back-off and quiet hours would be cut short."""
    first, second = ordered(engine, 2, status="PENDING", next_attempt_at="sql:now() + interval '1 h'")
    rows.change(engine, [second], relay_at="sql:next_attempt_at")
    rows.change(engine, [first], status="FAILED", error_code="x")
    with engine.begin() as connection:
        assert ordering.wake(connection, [first]) == []
    assert sql(engine, "SELECT relay_at > now() + interval '50 min' FROM delivery WHERE id = %(i)s", i=second) == [
        (True,)
    ]


def test_a_failed_one_frees_the_next(run_worker, engine, database_url):
    """Terminal is terminal, however it ended."""

    async def first_rejected(message):
        return Rejected("gone", "gone") if message.reference == ids[0] else Accepted("id")

    ids = ordered(engine, 2)
    with run_worker(ScriptedProvider(first_rejected)) as running, Carried(running, database_url):
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"FAILED": 1, "SENT": 1}, seconds=4)


def test_what_is_not_ordered_waits_for_nobody(run_worker, engine):
    """And holds nobody up."""
    ordered(engine, 1, status="UNKNOWN", uncertain=True)
    plain = rows.add(engine, 3)
    with run_worker(ScriptedProvider()) as running:
        running.park(plain)
        eventually(lambda: rows.statuses(engine, plain) == {"SENT": 3})


def test_one_users_ordered_messages_share_a_partition_key(settings, engine, database_url):
    """The key is a digest of the user: the id itself may be an address."""
    ids = ordered(engine, 20, status="PENDING", user="ana@example.com")
    plain = rows.add(engine, 5, status="PENDING")
    with relay_on(database_url, kafka_outlet(settings)) as relay:
        assert relay.run(Priority.LOW) == 25
    records = [one for one in read_topic(settings.kafka_bootstrap_servers, "notifications.low") if one.key()]
    keys = {one.key().decode() for one in records}
    assert len(keys - set(plain)) == 1
    assert len({one.partition() for one in records if one.key().decode() not in plain}) == 1
    assert len(ids) == 20
    assert not any(b"ana@" in one.value() for one in records)


@pytest.mark.parametrize("seconds", [0.4])
def test_order_is_by_due_time(run_worker, engine, seconds):
    """One that was accepted earlier for a later time comes later."""
    scheduled, now = ordered(engine, 2)
    rows.change(
        engine, [scheduled], order_at="sql:now() + interval '1 h'", next_attempt_at="sql:now() + interval '1 h'"
    )
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park([scheduled, now])
        eventually(lambda: rows.row(engine, now)["status"] == "SENT")
        never(lambda: provider.count(scheduled), seconds=seconds)
