"""Markers and the rescue of QUEUED rows on a real PostgreSQL: what proves a loss, and what does not."""

import dataclasses

import pytest

from app.domain.kinds import Channel, Priority
from app.services.rescue_queued import RescueQueued
from tests.delivery_rows import change, row
from tests.pipeline_parts import LIMITS, RecordingOutlet, add_due, make_markers, relay_on, sql, states

pytestmark = pytest.mark.timeout(60)

TOPIC = "notifications.low"


def queued(engine, count: int, seq: int) -> list[str]:
    ids = add_due(engine, count)
    change(engine, ids, status="QUEUED", published_seq=seq)
    return ids


def passed(engine, seq: int, *partitions: int, ago: str = "121 seconds", topic: str = TOPIC) -> None:
    for partition in partitions:
        sql(
            engine,
            "INSERT INTO flow_mark VALUES (%(t)s, %(p)s, %(s)s, now() - %(ago)s::interval)",
            t=topic,
            p=partition,
            s=seq,
            ago=ago,
        )


@pytest.fixture
def outlet():
    return RecordingOutlet(partitions=2)


@pytest.fixture
def rescue(engine, outlet):
    return RescueQueued(engine, outlet, hold_seconds=120.0, limit=5)


def test_a_row_older_than_a_marker_through_every_partition_is_published_again(
    engine, database_url, rescue, outlet
):
    """Its message was lost, so it is PENDING again, at no cost of an attempt, and leaves with the next tick.

    Fails when there is no rescue (`find_lost` returns nothing).
    """
    [lost] = queued(engine, 1, seq=10)
    [younger] = queued(engine, 1, seq=30)
    passed(engine, 20, 0, 1)
    assert rescue.run_once() == 1
    found = row(engine, lost)
    assert (found["status"], found["rescues"], found["attempts"]) == ("PENDING", 1, 0)
    assert row(engine, younger)["status"] == "QUEUED"
    with relay_on(database_url, outlet) as relay:
        assert relay.run(Priority.LOW) == 1
    assert outlet.ids == [lost]
    assert row(engine, lost)["status"] == "QUEUED"


def test_age_proves_nothing(engine, rescue):
    """A row that waits in a long backlog is not lost, however old it is.

    Fails under a rescue by age (`OR updated_at < now() - interval '2 minutes'` beside the number).
    """
    ids = queued(engine, 3, seq=10)
    change(engine, ids, updated_at="sql:now() - interval '3 hours'", relay_at="sql:now() - interval '3 hours'")
    passed(engine, 10, 0, 1)
    assert rescue.run_once() == 0
    assert states(engine, ids) == {"QUEUED": 3}


def test_a_marker_must_have_passed_long_enough_ago(engine, rescue):
    """A worker may still hold what came before a marker, unclaimed, for less than H."""
    queued(engine, 1, seq=10)
    passed(engine, 20, 0, 1, ago="119 seconds")
    assert rescue.run_once() == 0


def test_a_marker_must_have_passed_every_partition_that_exists(engine, rescue, outlet):
    """Case B13. A partition that was added counts at once: nothing is lost until a marker came through it too."""
    queued(engine, 1, seq=10)
    passed(engine, 20, 0)
    assert rescue.run_once() == 0
    outlet.count = 3
    passed(engine, 20, 1)
    assert rescue.run_once() == 0
    passed(engine, 15, 2)
    assert rescue.run_once() == 1


def test_the_least_partition_decides(engine, rescue):
    """W is the least over the partitions of the greatest number through each."""
    first, second = queued(engine, 1, seq=10) + queued(engine, 1, seq=14)
    passed(engine, 12, 0)
    passed(engine, 20, 0)
    passed(engine, 13, 1)
    assert rescue.run_once() == 1
    assert row(engine, first)["status"] == "PENDING"
    assert row(engine, second)["status"] == "QUEUED"


def test_partitions_that_are_gone_do_not_count(engine, rescue, outlet):
    """After a wipe the topic may have fewer partitions; marks of the old ones hold nothing up."""
    queued(engine, 1, seq=10)
    outlet.count = 1
    passed(engine, 20, 0)
    passed(engine, 5, 1)
    assert rescue.run_once() == 1


def test_nothing_is_lost_while_the_cluster_cannot_be_asked(engine, rescue, outlet):
    """Without the number of partitions there is no proof, only delay."""
    queued(engine, 1, seq=10)
    passed(engine, 20, 0, 1)
    outlet.count = None
    assert rescue.run_once() == 0


def test_marks_of_another_topic_prove_nothing(engine, rescue):
    """Only markers of the topic that the row went through count."""
    queued(engine, 1, seq=10)
    passed(engine, 20, 0, 1, topic="notifications.high")
    passed(engine, 20, 0, 1, topic="direct.low")
    assert rescue.run_once() == 0


def test_pauses_between_rescues_grow_and_end_in_undeliverable(engine, rescue):
    """A message that is lost again and again waits longer each time, and is given up after the limit."""
    [identifier] = queued(engine, 1, seq=10)
    passed(engine, 20, 0, 1)
    waits = []
    for _ in range(5):
        assert rescue.run_once() == 1
        [(wait,)] = sql(
            engine,
            "SELECT extract(epoch FROM relay_at - now())::float8 FROM delivery WHERE id = %(i)s::uuid",
            i=identifier,
        )
        waits.append(wait)
        change(engine, [identifier], status="QUEUED", published_seq=10)
    assert waits == pytest.approx([0, 5, 15, 35, 75], abs=2)
    assert rescue.run_once() == 1
    found = row(engine, identifier)
    assert (found["status"], found["error_code"], found["attempts"]) == ("FAILED", "undeliverable", 0)


def test_old_marks_are_pruned(engine, rescue):
    """A mark is kept for an hour."""
    passed(engine, 1, 0, ago="61 minutes")
    passed(engine, 2, 0, ago="59 minutes")
    assert rescue.prune() == 1
    assert sql(engine, "SELECT seq FROM flow_mark") == [(2,)]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_markers_flow_while_something_is_in_the_pipe(engine, outlet):
    """Every interval, to every partition, with a number above all stamps; none when nothing is QUEUED."""
    clock = Clock()
    markers = make_markers(engine, outlet, clock=clock)
    assert not markers.emit_if_due(Priority.LOW, 1.0)
    ids = queued(engine, 1, seq=sql(engine, "SELECT nextval('flow_seq')")[0][0])
    clock.now += 4.9
    assert not markers.emit_if_due(Priority.LOW, 1.0)
    clock.now += 0.2
    assert markers.emit_if_due(Priority.LOW, 1.0)
    assert not markers.emit_if_due(Priority.HIGH, 1.0)
    [(priority, seq, partitions)] = outlet.marks
    assert (priority, partitions) == (Priority.LOW, 2)
    assert seq > row(engine, ids[0])["published_seq"]


def test_the_number_of_a_marker_is_committed_before_it_is_sent(engine, outlet):
    """A crash of the database may hand out again what was not committed, below a marker that has passed.

    Fails when the marker is produced inside the transaction that drew its number.
    """
    open_transactions = []

    def look(*_arguments: object) -> bool:
        open_transactions.extend(
            sql(
                engine,
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND state LIKE 'idle in transaction%%'",
                unused=None,
            )
        )
        return True

    outlet.mark = look
    assert make_markers(engine, outlet).emit(Priority.LOW, 2, 1.0)
    assert not open_transactions


def test_many_rows_bring_a_marker_before_its_time(engine, outlet):
    """Every so many rows a partition, so that a wave of messages has marks between."""
    clock = Clock()
    markers = make_markers(engine, outlet, clock=clock, every_rows=100)
    markers.published(Priority.LOW, 100)
    assert markers.emit_if_due(Priority.LOW, 1.0), "the first one is due at once"
    markers.published(Priority.LOW, 199)
    assert not markers.emit_if_due(Priority.LOW, 1.0)
    markers.published(Priority.LOW, 1)
    assert markers.emit_if_due(Priority.LOW, 1.0)
    assert len(outlet.marks) == 2


def test_the_relay_sends_markers_behind_what_it_published(engine, database_url, outlet):
    """A run publishes, then marks: the number is above the stamps of all that it published."""
    ids = add_due(engine, 20, channel=Channel.EMAIL)
    with relay_on(database_url, outlet, dataclasses.replace(LIMITS, batch=10)) as relay:
        relay.run(Priority.LOW)
    assert outlet.marks
    assert row(engine, ids[0])["published_seq"] < outlet.marks[0][1]


def test_the_pipe_is_opened_as_soon_as_the_broker_answers(engine, outlet):
    """At the start one marker of each priority goes first, and waits for a broker that is still coming up."""
    outlet.count = None

    def the_broker_comes_up(_seconds: float) -> None:
        outlet.count = 2

    assert make_markers(engine, outlet).open_pipe(10.0, pause=the_broker_comes_up)
    assert [(priority, partitions) for priority, _, partitions in outlet.marks] == [(p, 2) for p in Priority]


def test_a_broker_that_stays_away_does_not_hold_the_start_up(engine, outlet):
    """The warm-up ends by itself: the first message opens what it could not."""
    outlet.count = None
    now = iter(range(1000))
    markers = make_markers(engine, outlet, clock=lambda: float(next(now)))
    assert not markers.open_pipe(10.0, pause=lambda _seconds: None)
    assert outlet.marks == []
