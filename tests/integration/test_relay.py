"""The relay on a real PostgreSQL: what it publishes, what it locks, and what a failure leaves behind."""

import dataclasses
import threading
from datetime import UTC, datetime, timedelta

import pytest

from app.db import deliveries, outbox
from app.db.session import make_engine
from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Refusal
from app.services.relay import RelayLimits
from tests.delivery_rows import change, row
from tests.integration.rows import make_day
from tests.pipeline_parts import LIMITS, RecordingOutlet, add_due, in_thread, relay_on, sql, states
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(60)

BROKER_DOWN = Refusal("kafka: _MSG_TIMED_OUT", about_record=False)
TOO_LARGE = Refusal("kafka: MSG_SIZE_TOO_LARGE", about_record=True)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_due_is_published_once_and_queued(engine, database_url):
    """Each due row goes out once, becomes QUEUED with a number, and keeps its attempts."""
    ids = add_due(engine, 1200)
    outlet = RecordingOutlet()
    with relay_on(database_url, outlet) as relay:
        assert relay.run(Priority.LOW) == 1200
        assert relay.run(Priority.LOW) == 0
    assert sorted(outlet.ids) == sorted(ids)
    assert states(engine, ids) == {"QUEUED": 1200}
    assert row(engine, ids[0])["attempts"] == 0


def test_what_is_not_due_cancelled_expired_or_of_another_priority_stays(engine, database_url):
    """The relay takes nothing that may not be sent now."""
    later, cancelled, expired, other = add_due(engine, 4)
    change(engine, [later], relay_at="sql:now() + interval '1 minute'")
    change(engine, [cancelled], status="CANCELLED")
    change(engine, [expired], expires_at="sql:now() - interval '1 second'")
    change(engine, [other], priority=int(Priority.HIGH))
    outlet = RecordingOutlet()
    with relay_on(database_url, outlet) as relay:
        assert relay.run(Priority.LOW) == 0
        assert outlet.ids == []
        assert relay.run(Priority.HIGH) == 1
    assert outlet.ids == [other]


def test_two_relays_publish_each_row_once(engine, database_url):
    """Two relays at once share the rows: none is published twice, none waits for the other.

    Fails without the lock (`FOR UPDATE SKIP LOCKED` taken out of the claim): both publish the same rows.
    """
    ids = add_due(engine, 3000)
    meeting = threading.Barrier(2)
    outlets = [RecordingOutlet(), RecordingOutlet()]

    def first_meets_second() -> None:
        if not meeting.broken and meeting.n_waiting < 2 and len(outlets[0].batches) + len(outlets[1].batches) <= 2:
            meeting.wait(10)

    for outlet in outlets:
        outlet.during = first_meets_second
    with (
        relay_on(database_url, outlets[0]) as one,
        relay_on(database_url, outlets[1]) as two,
        in_thread(lambda: one.run(Priority.LOW)),
    ):
        two.run(Priority.LOW)
    published = outlets[0].ids + outlets[1].ids
    assert len(published) == len(set(published)) == len(ids)
    assert outlets[0].ids
    assert outlets[1].ids
    assert states(engine, ids) == {"QUEUED": 3000}


def test_a_claim_that_overtakes_the_commit_waits_and_wins(engine, database_url):
    """A worker that gets the message before the relay commits waits for the row; afterwards the row is SENDING.

    Fails with relay and worker unlocked and a blind update (no `FOR UPDATE`, no `status = 'PENDING'` in
    MARK_QUEUED): the claimed row is made QUEUED under the worker's call, or the update breaks a constraint.
    """
    [identifier] = add_due(engine, 1)
    outlet = RecordingOutlet()
    claimed: list[object] = []
    worker = make_engine(database_url, application_name="test-worker", autocommit=True)

    def claim() -> None:
        with worker.connect() as connection:
            claimed.extend(deliveries.claim(connection, [identifier], [0], "sandbox", 120.0))

    waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'test-worker' AND wait_event_type = 'Lock'"
    threads: list[threading.Thread] = []

    def overtake() -> None:
        threads.append(threading.Thread(target=claim))
        threads[0].start()
        eventually(lambda: sql(engine, waiting) or claimed)

    outlet.during = overtake
    with relay_on(database_url, outlet) as relay:
        assert relay.run(Priority.LOW) == 1
    threads[0].join(10)
    worker.dispose()
    assert len(claimed) == 1
    assert row(engine, identifier)["status"] == "SENDING"


def test_only_pending_rows_are_made_queued(engine):
    """Marking published rows is a compare-and-set on PENDING.

    Fails with a blind update (`status = 'PENDING'` taken out of MARK_QUEUED).
    """
    pending, cancelled, sent = add_due(engine, 3)
    change(engine, [cancelled], status="CANCELLED")
    change(engine, [sent], status="SENT", sent_at="sql:now()")
    with engine.begin() as connection:
        assert outbox.mark_queued(connection, [pending, cancelled, sent]) == 1
    assert row(engine, cancelled)["status"] == "CANCELLED"
    assert row(engine, sent)["status"] == "SENT"


def test_the_number_is_drawn_after_the_acknowledgement(engine, database_url):
    """A marker drawn while a batch is not acknowledged yet proves nothing about it: the row's number is greater.

    Fails when the stamp is drawn before the publication (nextval moved before `outlet.publish`).
    """
    [identifier] = add_due(engine, 1)
    outlet = RecordingOutlet()
    drawn: list[int] = []
    outlet.during = lambda: drawn.append(sql(engine, "SELECT nextval('flow_seq')")[0][0])
    with relay_on(database_url, outlet) as relay:
        relay.run(Priority.LOW)
    assert row(engine, identifier)["published_seq"] > drawn[0]


def test_a_refusal_leaves_the_row_pending_and_says_why(engine, database_url):
    """Case B01. A row is QUEUED only by its own acknowledgement; a refused one stays, with its reason."""
    ids = add_due(engine, 10)
    outlet = RecordingOutlet()
    outlet.verdict = lambda due: BROKER_DOWN if due.id in ids[5:] else None
    with relay_on(database_url, outlet) as relay:
        assert relay.run(Priority.LOW) == 5
    assert states(engine, ids[:5]) == {"QUEUED": 5}
    assert states(engine, ids[5:]) == {"PENDING": 5}
    kept = row(engine, ids[5])
    assert kept["last_error"] == "publish: kafka: _MSG_TIMED_OUT"
    assert kept["attempts"] == 0


def test_a_broker_outage_spins_nothing_and_recovers(engine, database_url):
    """While the broker is away the relay tries one row after growing pauses; then everything goes out."""
    ids = add_due(engine, 100)
    outlet, clock = RecordingOutlet(), Clock()
    outlet.verdict = lambda due: BROKER_DOWN
    sizes: list[int] = []
    with relay_on(database_url, outlet, clock=clock) as relay:
        for _ in range(150):
            before = len(outlet.batches)
            relay.run(Priority.LOW)
            sizes.append(len(outlet.batches) - before)
            clock.now += 0.2
        assert sum(sizes) <= 14, "30 s of ticks make few attempts"
        assert {row(engine, identifier)["attempts"] for identifier in ids[:3]} == {0}
        outlet.verdict = lambda due: None
        clock.now += 10
        assert relay.run(Priority.LOW) == 100
    assert row(engine, ids[0])["last_error"] is None


def test_nothing_is_locked_while_the_cluster_cannot_even_be_asked(engine, database_url):
    """After a failure the relay first asks for a sign of life, so a cancel does not wait for a dead broker."""
    add_due(engine, 5)
    outlet, clock = RecordingOutlet(), Clock()
    outlet.verdict = lambda due: BROKER_DOWN
    with relay_on(database_url, outlet, clock=clock) as relay:
        relay.run(Priority.LOW)
        tried = len(outlet.batches)
        outlet.count = None
        for _ in range(5):
            clock.now += 10
            relay.run(Priority.LOW)
    assert len(outlet.batches) == tried


def test_rows_that_are_refused_for_ever_do_not_keep_others_waiting(engine, database_url):
    """Case C03. The oldest rows fill every batch and are refused for what they are: the good ones still leave."""
    bad = add_due(engine, 100)
    change(engine, bad, relay_at="sql:now() - interval '1 hour'")
    good = add_due(engine, 10)
    outlet = RecordingOutlet()
    outlet.verdict = lambda due: TOO_LARGE if due.id in bad else None
    with relay_on(database_url, outlet, dataclasses.replace(LIMITS, batch=100)) as relay:
        relay.run(Priority.LOW)
        relay.run(Priority.LOW)
    assert states(engine, good) == {"QUEUED": 10}
    assert states(engine, bad) == {"PENDING": 100}
    kept = row(engine, bad[0])
    assert kept["last_error"] == "publish: kafka: MSG_SIZE_TOO_LARGE"
    assert kept["attempts"] == 0
    assert kept["relay_at"] > datetime.now(UTC)


def test_a_row_committed_late_under_an_older_id_is_published(engine, database_url):
    """Case C01. Rows are chosen by their state, so a lower id that appears later is not skipped."""
    older, newer = (str(identifier) for identifier in sorted(mint(2)))
    insert = (
        "INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority)"
        " VALUES (%(id)s, %(id)s, 't', 'u', 'SMS', 2)"
    )
    outlet = RecordingOutlet()
    with relay_on(database_url, outlet) as relay, engine.connect() as slow:
        slow.exec_driver_sql(insert, {"id": older})
        sql(engine, insert, id=newer)
        relay.run(Priority.LOW)
        assert outlet.ids == [newer]
        slow.commit()
        relay.run(Priority.LOW)
    assert outlet.ids == [newer, older]


def test_a_lost_database_connection_publishes_again_and_raises_nothing(engine, database_url):
    """The backend dies between acknowledgement and commit: rolled back, never repeated on another connection."""
    ids = add_due(engine, 20)
    outlet, clock = RecordingOutlet(), Clock()
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test-relay'"
    outlet.during = lambda: sql(engine, kill) and None
    with relay_on(database_url, outlet, clock=clock) as relay:
        assert relay.run(Priority.LOW) == 0
        assert states(engine, ids) == {"PENDING": 20}
        outlet.during = lambda: None
        clock.now += 10
        assert relay.run(Priority.LOW) == 20
    assert sorted(outlet.ids[20:]) == sorted(ids)


def test_channels_take_turns(engine, database_url):
    """A backlog of one channel does not hold up another one of the same priority."""
    add_due(engine, 1000, channel=Channel.SMS)
    add_due(engine, 5, channel=Channel.EMAIL)
    outlet = RecordingOutlet()
    with relay_on(database_url, outlet, dataclasses.replace(LIMITS, batch=100)) as relay:
        relay.run(Priority.LOW)
    assert Channel.EMAIL in [channel for channel, _ in outlet.batches[:2]]


def test_the_pipe_holds_no_more_of_a_channel_than_it_can_take(engine, database_url):
    """What is above the bound waits as PENDING; other channels and unbounded ones are not touched by it."""
    sms = add_due(engine, 300, channel=Channel.SMS)
    app = add_due(engine, 50, channel=Channel.IN_APP)
    outlet, clock = RecordingOutlet(), Clock()
    limits = RelayLimits(batch=40, budget_seconds=20.0, acknowledge_seconds=5.0, in_pipe={Channel.SMS: 100})
    with relay_on(database_url, outlet, limits, clock=clock) as relay:
        relay.run(Priority.LOW)
        assert states(engine, sms) == {"QUEUED": 100, "PENDING": 200}
        assert states(engine, app) == {"QUEUED": 50}
        queued = [identifier for identifier in outlet.ids if identifier in sms]
        change(engine, queued[:30], status="SENT", sent_at="sql:now()")
        clock.now += 1.5
        relay.run(Priority.LOW)
    assert states(engine, sms) == {"SENT": 30, "QUEUED": 100, "PENDING": 170}


@pytest.mark.parametrize("days", [-5, 20])
def test_the_sweep_finds_what_was_minted_on_other_days(engine, database_url, days):
    """A scheduled row of last week, or one minted under a wrong clock, is found within two seconds."""
    when = datetime.now(UTC) + timedelta(days=days)
    make_day(engine, when.date())
    identifiers = [str(identifier) for identifier in mint(30, int(when.timestamp() * 1000))]
    insert = (
        "INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority)"
        " SELECT i, i, 't', 'u', 'SMS', 2 FROM unnest(%(ids)s::uuid[]) AS i"
    )
    outlet, clock = RecordingOutlet(), Clock()
    with relay_on(database_url, outlet, dataclasses.replace(LIMITS, batch=10), clock=clock) as relay:
        relay.run(Priority.LOW)
        sql(engine, insert, ids=identifiers)
        clock.now += 1.0
        assert relay.run(Priority.LOW) == 0, "between two sweeps only recent days are read"
        clock.now += 1.5
        assert relay.run(Priority.LOW) == 30


def test_a_run_that_meets_another_asks_it_to_look_once_more(engine, database_url):
    """Ticks coalesce in a process, and what was committed meanwhile is not left for the next tick."""
    add_due(engine, 5)
    outlet = RecordingOutlet()
    late: list[str] = []
    with relay_on(database_url, outlet) as relay:

        def meet() -> None:
            if not late:
                late.extend(add_due(engine, 3, channel=Channel.PUSH))
                assert relay.run(Priority.LOW) == 0

        outlet.during = meet
        assert relay.run(Priority.LOW) == 8
    assert set(late) <= set(outlet.ids)
