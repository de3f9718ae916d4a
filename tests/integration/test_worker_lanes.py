"""The worker of one process, from parked ids to recorded outcomes, with a scripted provider."""

import asyncio
import threading
from time import monotonic

import pytest
import redis

from app import wiring_worker
from app.db import deliveries
from app.domain.kinds import Channel, Priority
from app.services.deliver import lane as lane_module
from app.services.deliver.render import Render
from providers.outcome import Accepted, Misconfigured, Rejected, Retry, Scope, Throttled, Unknown
from tests import delivery_rows as rows
from tests.waiting import eventually, never
from tests.worker_harness import ScriptedProvider


def answer(outcome):
    async def script(_message):
        return outcome

    return script


def test_parked_ids_are_sent_once_each_and_recorded(run_worker, engine):
    """An id that is parked twice, or comes again later, is called once."""
    ids = rows.add(engine, 120)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(ids[:70])
        running.park(ids[50:])
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 120})
        running.park(ids)
        never(lambda: len(provider.calls) > 120, seconds=0.5)
    assert {provider.count(id_) for id_ in ids} == {1}
    assert rows.row(engine, ids[0])["provider_message_id"] == f"id-{ids[0]}"


def test_a_hanging_recipient_holds_up_neither_its_chunk_nor_another_channel(run_worker, engine):
    """Case A17. The hanging calls end at the adapter's deadline, as UNKNOWN, and free their places."""

    async def hang(message):
        if message.recipient == "hang":
            await asyncio.sleep(3600)
        return Accepted(None)

    hanging = rows.add(engine, 8, recipient="hang")
    good = rows.add(engine, 50)
    mail = rows.add(engine, 20, channel=Channel.EMAIL)
    provider = ScriptedProvider(hang, deadline_seconds=1.0)
    with run_worker(provider, {Channel.EMAIL: ScriptedProvider(name="mail")}, worker_window=8) as running:
        running.park(hanging + good)
        eventually(lambda: len(provider.calls) >= 8)
        started = monotonic()
        running.park(mail, channel=Channel.EMAIL)
        eventually(lambda: rows.statuses(engine, mail) == {"SENT": 20}, seconds=5)
        assert monotonic() - started < 1.5
        eventually(lambda: rows.statuses(engine, good) == {"SENT": 50})
        eventually(lambda: rows.statuses(engine, hanging) == {"UNKNOWN": 8})


def test_one_bad_member_fails_alone(run_worker, engine, monkeypatch):
    """Fails under `one bad member fails its chunk`: an exception concerns its id only, and costs no attempt."""

    class Explosive(Render):
        def __call__(self, row):
            message = super().__call__(row)
            if message.body == "bad":
                raise ZeroDivisionError
            return message

    monkeypatch.setattr(wiring_worker, "Render", Explosive)
    bad = rows.add(engine, 1, body="bad")
    empty = rows.add(engine, 1, title="", body=" ")
    nobody = rows.add(engine, 1, recipient="")
    good = rows.add(engine, 30)
    with run_worker(ScriptedProvider()) as running:
        running.park(good[:15] + bad + empty + nobody + good[15:])
        eventually(lambda: rows.statuses(engine, good) == {"SENT": 30})
    failed = [rows.row(engine, id_) for id_ in (bad[0], empty[0], nobody[0])]
    assert [row["error_code"] for row in failed] == ["render_failed", "empty_content", "no_recipient"]
    assert [(row["status"], row["attempts"]) for row in failed] == [("FAILED", 0)] * 3


def test_the_fence_gives_back_what_could_outlive_its_lease(run_worker, engine, monkeypatch):
    """Fails under `no fence`: a call would begin although its lease may end before its answer.

    The claim's answer is held up for longer than the lease leaves.
    """
    real = deliveries.claim

    def slow(*arguments):
        answer = real(*arguments)
        if delays:
            delays.pop().wait(1.2)
        return answer

    delays = [threading.Event()]
    monkeypatch.setattr(deliveries, "claim", slow)
    ids = rows.add(engine)
    provider = ScriptedProvider(deadline_seconds=0.5)
    chosen = {"lease_minimum_seconds": 1.6, "provider_timeout_seconds": 0.5, "lease_margin_seconds": 0.3}
    with run_worker(provider, **chosen) as running:
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "PENDING")
        assert provider.calls == []
        row = rows.row(engine, ids[0])
        assert (row["attempts"], row["lease_token"]) == (0, 1)
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "SENT")


def test_no_call_begins_past_the_deadline_of_a_delivery(run_worker, engine, monkeypatch):
    """Fails when the fence ignores `expires_at` (`no expiry check`)."""
    real = deliveries.claim

    def slow(*arguments):
        answer = real(*arguments)
        threading.Event().wait(1.0)
        return answer

    monkeypatch.setattr(deliveries, "claim", slow)
    ids = rows.add(engine, expires_in=0.9)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["status"] in {"EXPIRED", "SENT"})
    assert rows.row(engine, ids[0])["status"] == "EXPIRED"
    assert provider.calls == []


def test_a_guard_of_a_dead_call_does_not_block_the_next(run_worker, engine, redis_client):
    """Fails under `plain NX guard`: the mark that a killed worker left would refuse the rightful claim."""
    ids = rows.add(engine, 1, lease_token=1, attempts=1)
    redis_client.set(f"arauto:{{guard}}:{ids[0]}", "1:dead:x", px=600_000)
    with run_worker(ScriptedProvider()) as running:
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "SENT")


def test_a_claim_that_the_database_forgot_is_refused_and_given_back(run_worker, engine, redis_client):
    """The mark of an equal or higher token means that this claim was made before: an alarm, and no call."""
    ids = rows.add(engine)
    redis_client.set(f"arauto:{{guard}}:{ids[0]}", "7:other:x", px=600_000)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["lease_token"] == 1)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "PENDING")
    assert provider.calls == []
    assert rows.row(engine, ids[0])["attempts"] == 0


def test_guards_are_released_on_every_path(run_worker, engine, redis_client):
    """After the record, and after a give-back."""
    ids = rows.add(engine, 10)
    with run_worker(ScriptedProvider()) as running:
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 10})
        eventually(lambda: redis_client.keys("arauto:{guard}:*") == [])


def test_a_retry_gets_a_countdown_and_the_relay_stands_back(run_worker, engine):
    """Fails under `no countdown grace`: the relay would publish in the same instant as the countdown."""
    ids = rows.add(engine)
    with run_worker(ScriptedProvider(answer(Retry("503", "busy")))) as running:
        running.park(ids)
        eventually(lambda: running.countdowns)
    row = rows.row(engine, ids[0])
    [countdown] = running.countdowns
    assert (row["status"], row["attempts"]) == ("PENDING", 1)
    assert (row["relay_at"] - row["next_attempt_at"]).total_seconds() == 10
    assert (countdown.id, countdown.attempt, countdown.queue) == (ids[0], 1, "low")
    assert 1.5 <= countdown.delay_seconds <= 2.5


def test_without_a_place_for_a_countdown_the_relay_is_not_put_off(run_worker, engine):
    """Countdowns are bounded: beyond the bound the relay alone brings the row back, in time."""
    ids = rows.add(engine, 3)
    with run_worker(ScriptedProvider(answer(Retry("503", "busy"))), countdown_slots=1) as running:
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"PENDING": 3})
        eventually(lambda: running.countdowns)
    found = [rows.row(engine, id_) for id_ in ids]
    assert len(running.countdowns) == 1
    graces = sorted((row["relay_at"] - row["next_attempt_at"]).total_seconds() for row in found)
    assert graces == [0, 0, 10]


def test_a_countdown_is_tied_to_the_attempts_of_its_row(run_worker, engine):
    """Fails under `countdown not tied to the attempt`: a late countdown would begin a call of its own."""
    ids = rows.add(engine, 1, status="PENDING", attempts=2)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(ids, attempt=1)
        never(lambda: provider.calls, seconds=0.5)
        running.park(ids, attempt=2)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "SENT")


def test_a_countdown_that_is_a_little_early_waits_until_it_is_due(run_worker, engine):
    """By the database's clock; one that is far too early is dropped."""
    soon = rows.add(engine, 1, status="PENDING", next_attempt_at="sql:now() + interval '1 s'", attempts=1)
    later = rows.add(engine, 1, status="PENDING", next_attempt_at="sql:now() + interval '5 s'", attempts=1)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(soon + later, attempt=1)
        eventually(lambda: rows.row(engine, soon[0])["status"] == "SENT", seconds=5)
    sent = rows.attempts(engine, soon[0])[0]["started_at"]
    assert sent >= rows.row(engine, later[0])["created_at"]
    assert provider.count(later[0]) == 0


@pytest.mark.parametrize(
    ("outcome", "allowed"),
    [(Throttled("429", "slow down", 0.5, Scope.RECIPIENT), 2), (Misconfigured("401", "wrong token"), 2)],
)
def test_a_call_that_is_not_the_messages_fault_uses_up_nothing(run_worker, engine, outcome, allowed):
    """Case H01. It counts as a call, and adds one to what is allowed."""
    ids = rows.add(engine, 1, attempts_allowed=1)
    with run_worker(ScriptedProvider(answer(outcome))) as running:
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["attempts"] == 1)
    row = rows.row(engine, ids[0])
    assert (row["status"], row["attempts_allowed"]) == ("PENDING", allowed)


def test_a_throttled_account_slows_everybody(run_worker, engine):
    """Case G19. Nobody calls before the time that the provider asked for; nothing is lost or doubled."""
    outcomes = [Throttled("429", "slow down", 1.0, Scope.ACCOUNT)]

    async def once(_message):
        return outcomes.pop() if outcomes else Accepted(None)

    first, rest = rows.add(engine, 1), rows.add(engine, 20)
    provider = ScriptedProvider(once)
    with run_worker(provider) as running:
        running.park(first)
        eventually(lambda: rows.row(engine, first[0])["attempts"] == 1)
        running.park(rest)
        eventually(lambda: rows.statuses(engine, rest) == {"SENT": 20})
    gaps = [at - provider.calls[0][1] for _, at in provider.calls[1:]]
    assert min(gaps) >= 0.95


def test_rejections_end_and_ambiguous_answers_wait(run_worker, engine):
    """One call each; neither is tried again by the worker."""
    gone, lost = rows.add(engine, 1, recipient="gone"), rows.add(engine, 1, recipient="lost")

    async def script(message):
        if message.recipient == "gone":
            return Rejected("gone", "no such number", recipient_gone=True)
        return Unknown("timeout", "no answer")

    with run_worker(ScriptedProvider(script)) as running:
        running.park(gone + lost)
        eventually(lambda: rows.row(engine, gone[0])["status"] == "FAILED")
        eventually(lambda: rows.row(engine, lost[0])["status"] == "UNKNOWN")


def test_an_open_breaker_costs_no_attempt_and_no_call(run_worker, engine):
    """The provider refuses connections: after a few calls the rest goes back into the table, for a while."""
    ids = rows.add(engine, 60)
    provider = ScriptedProvider(answer(Retry("refused", "connection refused", refused_connection=True)))
    with run_worker(provider, worker_window=10) as running:
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids).get("PENDING") == 60)
    found = [rows.row(engine, id_) for id_ in ids]
    assert len(provider.calls) < 40
    assert sum(row["attempts"] for row in found) == len(provider.calls)
    assert all(row["next_attempt_at"] > row["updated_at"] for row in found)


def test_what_waits_too_long_for_tokens_is_deferred(run_worker, engine):
    """Unclaimed and at no attempt, before rescue would hold its message for lost."""
    ids = rows.add(engine, 40)
    provider = ScriptedProvider()
    with run_worker(provider, sms_rate_per_second=2, rate_wait_seconds=1.0) as running:
        running.park(ids)
        eventually(lambda: set(rows.statuses(engine, ids)) <= {"SENT", "PENDING"})
    deferred = [row for row in (rows.row(engine, id_) for id_ in ids) if row["status"] == "PENDING"]
    assert len(deferred) > 20
    assert {row["attempts"] for row in deferred} == {0}


def test_a_lane_that_waits_for_tokens_uses_nearly_all_of_them(run_worker, engine):
    """At least 90 % of the limit over two seconds, and never more than the limit in any sliding second."""
    ids = rows.add(engine, 400)
    provider = ScriptedProvider()
    with run_worker(provider, sms_rate_per_second=100) as running:
        running.park(ids)
        eventually(lambda: len(provider.calls) >= 320, seconds=20)
    times = [at for _, at in provider.calls]
    span = times[-1] - times[20]
    assert (len(times) - 21) / span >= 90
    busiest = max(sum(1 for at in times if start <= at < start + 1.0) for start in times[::10])
    assert busiest <= 110


def test_stopping_hands_back_what_waits_and_lets_calls_end(run_worker, engine):
    """Case A05. Parked ids are PENDING again at once, at no attempt; the call under way is recorded."""

    async def slow(_message):
        await asyncio.sleep(0.8)
        return Accepted(None)

    ids = rows.add(engine, 30)
    provider = ScriptedProvider(slow)
    with run_worker(provider, worker_window=5) as running:
        running.park(ids)
        eventually(lambda: len(provider.calls) == 5)
        running.worker.begin_stop()
        running.worker.begin_stop()
        eventually(lambda: rows.statuses(engine, ids).get("PENDING") == 25)
        late = rows.add(engine)
        running.park(late)
        running.worker.stop()
    assert rows.statuses(engine, ids) == {"SENT": 5, "PENDING": 25}
    assert rows.row(engine, late[0])["status"] == "PENDING"
    assert len(provider.calls) == 5


def test_calls_that_do_not_end_at_the_stop_are_unknown(run_worker, engine):
    """They may have been accepted: the row says so at once, without waiting for its lease."""

    async def hang(_message):
        await asyncio.sleep(3600)

    ids = rows.add(engine)
    provider = ScriptedProvider(hang, deadline_seconds=100)
    with run_worker(provider, worker_stop_seconds=0.3) as running:
        running.park(ids)
        eventually(lambda: provider.calls)
    row = rows.row(engine, ids[0])
    assert (row["status"], row["error_code"]) == ("UNKNOWN", "cancelled")


def test_a_row_that_killed_its_worker_three_times_is_undeliverable(run_worker, engine, redis_client):
    """Case A07. The count lives outside the worker; the good ones behind it go on."""
    bad, good = rows.add(engine), rows.add(engine, 5)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        for _ in range(lane_module.CRASHES_ALLOWED):
            running.worker._limits.crashes.started(bad)
        for id_ in bad + good:
            running.park([id_], is_suspect=True)
        eventually(lambda: rows.statuses(engine, good) == {"SENT": 5})
        eventually(lambda: rows.row(engine, bad[0])["status"] == "FAILED")
    assert rows.row(engine, bad[0])["error_code"] == "undeliverable"
    assert redis_client.keys("arauto:{crash}:*") == []


def test_a_lost_redis_costs_no_attempt(run_worker, engine, valkey, redis_client):
    """Without tokens and guard no call begins; when Redis is back the ids go on."""
    ids = rows.add(engine, 10)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        redis_client.execute_command("CLIENT", "PAUSE", "3500", "ALL")
        running.park(ids)
        never(lambda: provider.calls, seconds=1.0)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 10}, seconds=30)
    assert {rows.row(engine, id_)["attempts"] for id_ in ids} == {1}


def test_a_killed_database_connection_after_the_call_makes_no_second_call(run_worker, engine):
    """Cases C13 and F05. The outcome is written on a fresh connection; none is held during the call."""

    async def slow(_message):
        await asyncio.sleep(0.7)
        return Accepted(None)

    ids = rows.add(engine, 5)
    provider = ScriptedProvider(slow)
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: len(provider.calls) == 5)
        with engine.connect() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'arauto-worker' AND datname = current_database()"
            )
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 5})
    assert len(provider.calls) == 5
    assert {len(rows.attempts(engine, id_)) for id_ in ids} == {1}


def test_an_idle_lane_sends_within_milliseconds(run_worker, engine):
    """HIGH does not wait for a tick anywhere in the worker."""
    ids = rows.add(engine, 20, priority=Priority.HIGH)
    provider = ScriptedProvider()
    waits = []
    with run_worker(provider) as running:
        running.park(rows.add(engine, 1, priority=Priority.HIGH), priority=Priority.HIGH)
        eventually(lambda: len(provider.calls) == 1)
        for number, id_ in enumerate(ids):
            started = monotonic()
            running.park([id_], priority=Priority.HIGH)
            eventually(lambda: len(provider.calls) == number + 2, every_seconds=0.001)  # noqa: B023
            waits.append(provider.calls[-1][1] - started)
    assert sorted(waits)[10] < 0.1, [round(wait * 1000, 1) for wait in waits]


def test_a_flushed_redis_changes_nothing(run_worker, engine, redis_client):
    """Scripts are loaded again, marks and counts begin anew."""
    first, second = rows.add(engine, 5), rows.add(engine, 5)
    with run_worker(ScriptedProvider()) as running:
        running.park(first)
        eventually(lambda: rows.statuses(engine, first) == {"SENT": 5})
        redis_client.flushall()
        redis_client.script_flush()
        running.park(second)
        eventually(lambda: rows.statuses(engine, second) == {"SENT": 5})
    assert isinstance(redis_client, redis.Redis)


def test_ids_that_find_no_room_go_back_to_the_table(run_worker, engine):
    """A worker's memory is bounded, and a full lane does not block the Celery list for other channels."""
    ids, mail = rows.add(engine, 30), rows.add(engine, 3, channel=Channel.EMAIL)
    provider = ScriptedProvider()
    with run_worker(provider, sms_rate_per_second=1, email_rate_per_second=100, worker_parked=5) as running:
        running.park(ids)
        running.park(mail, channel=Channel.EMAIL)
        eventually(lambda: rows.statuses(engine, ids).get("PENDING", 0) >= 20)
        eventually(lambda: rows.statuses(engine, mail) == {"SENT": 3})
    assert {rows.row(engine, id_)["attempts"] for id_ in ids} <= {0, 1}


def test_a_provider_that_throws_is_a_doubt_and_not_a_crash(run_worker, engine):
    """An adapter's bug: the call may have been made, the others go on."""

    async def broken(message):
        if message.recipient == "broken":
            raise RuntimeError("bug")
        return Accepted(None)

    bad, good = rows.add(engine, 1, recipient="broken"), rows.add(engine, 5)
    with run_worker(ScriptedProvider(broken)) as running:
        running.park(bad + good)
        eventually(lambda: rows.statuses(engine, good) == {"SENT": 5})
        eventually(lambda: rows.row(engine, bad[0])["status"] == "UNKNOWN")
    assert rows.row(engine, bad[0])["error_code"] == "adapter_error"
