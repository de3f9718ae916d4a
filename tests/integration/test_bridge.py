"""The bridge between a Kafka protocol server and a real Valkey: order, offsets, poison, back-pressure."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.bridge.supervise import keep_running, topic_loop
from app.domain.envelope import DeliveryDue
from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Publisher, Record
from app.kafka.reader import TopicReader
from app.kafka.topics import ensure_topics
from app.queues import DEAD_LETTER_TOPIC, LANES, TASK_MARK
from app.services.dead_letters import DeadLetters
from app.services.rescue_queued import RescueQueued
from app.services.task_list import ids_in
from embedded.light_broker import LightBroker
from tests.delivery_rows import change
from tests.pipeline_parts import (
    add_due,
    in_list,
    in_thread,
    kafka_outlet,
    make_markers,
    read_topic,
    relay_on,
    sql,
    states,
)
from tests.waiting import eventually, never

pytestmark = pytest.mark.timeout(120)

LOW = LANES[Priority.LOW]


@pytest.fixture
def light_broker(tmp_path) -> Iterator[str]:
    """A mock cluster of this test's own: what another test left in a topic would be bridged too."""
    with LightBroker(tmp_path / "broker") as broker:
        yield broker.bootstrap


@contextmanager
def bridge(settings, lane=LOW) -> Iterator[threading.Event]:
    """A running loop on one topic, which ends in time."""
    stop = threading.Event()
    with in_thread(lambda: keep_running(settings, lane, stop)):
        try:
            yield stop
        finally:
            stop.set()


def records(count, channel=Channel.SMS, partition=-1, rescues=0):
    made = []
    for identifier in map(str, mint(count)):
        envelope = DeliveryDue("e", identifier, identifier, channel, Priority.LOW, "demo", rescues)
        made.append(Record(LOW.topic, envelope.encode(), identifier, partition))
    return made


def publish(settings, made):
    ensure_topics(settings)
    publisher = Publisher(settings)
    assert not any(publisher.publish(made, 10.0))
    publisher.close()
    return [record.key for record in made]


def carried(client):
    return [identifier for task in in_list(client, "low") for identifier in ids_in(task)]


def test_what_is_published_comes_into_the_list_in_chunks(make_settings, redis_client):
    """Every id arrives once, by channel, in far fewer tasks than ids."""
    settings = make_settings(database_url="")
    ids = publish(settings, records(300) + records(200, Channel.EMAIL))
    with bridge(settings):
        eventually(lambda: len(carried(redis_client)) >= 500, seconds=30)
    assert sorted(carried(redis_client)) == sorted(ids)
    assert len(in_list(redis_client, "low")) < 100


def test_a_second_bridge_goes_on_where_the_first_one_stopped(make_settings, redis_client):
    """Offsets are committed at the stop, so nothing comes twice and nothing is passed over."""
    settings = make_settings(database_url="")
    first = publish(settings, records(100))
    with bridge(settings):
        eventually(lambda: len(carried(redis_client)) >= 100, seconds=30)
    second = publish(settings, records(50))
    with bridge(settings):
        eventually(lambda: len(carried(redis_client)) >= 150, seconds=30)
    assert sorted(carried(redis_client)) == sorted(first + second)


def test_an_id_that_is_not_in_the_list_is_not_committed(make_settings, redis_client):
    """Case B09. While the list cannot be written, offsets stay: who takes over reads the records again.

    Fails when offsets are committed before the push.
    """
    broken = make_settings(database_url="", broker_url="redis://127.0.0.1:1/0")
    ids = publish(broken, records(40))
    with bridge(broken) as stop:
        assert not stop.wait(6.0)
    with bridge(make_settings(database_url="")):
        eventually(lambda: len(carried(redis_client)) >= 40, seconds=30)
    assert sorted(carried(redis_client)) == sorted(ids)


def test_a_failed_push_is_tried_until_it_succeeds(make_settings, redis_client):
    """The list refuses for a while (its key is no list): nothing is passed, set aside or lost."""
    settings = make_settings(database_url="")
    redis_client.set("low", "in the way")
    ids = publish(settings, records(60))
    with bridge(settings):
        never(lambda: redis_client.type("low") != b"string", seconds=5.0)
        redis_client.delete("low")
        eventually(lambda: len(carried(redis_client)) >= 60, seconds=30)
    assert sorted(set(carried(redis_client))) == sorted(ids)
    assert read_topic(settings.kafka_bootstrap_servers, DEAD_LETTER_TOPIC) == []


def test_poison_is_set_aside_and_the_rest_goes_on(make_settings, redis_client):
    """Case B11. Unreadable records go to the dead letters with reason and origin; the good one is handed on."""
    settings = make_settings(database_url="")
    bad = [Record(LOW.topic, b"\xff\xfe{", partition=0), Record(LOW.topic, b'{"schema":999}', partition=0)]
    ids = publish(settings, bad + records(1, partition=0))[2:]
    with bridge(settings):
        eventually(lambda: carried(redis_client) == ids, seconds=30)
        letters = eventually(
            lambda: len(found := read_topic(settings.kafka_bootstrap_servers, DEAD_LETTER_TOPIC)) == 2 and found,
            seconds=20,
        )
    letter = next(found for found in letters if found.value() == b'{"schema":999}')
    headers = dict(letter.headers())
    assert headers["origin-topic"] == LOW.topic.encode()
    assert (headers["origin-partition"], headers["origin-offset"], headers["tries"]) == (b"0", b"1", b"3")
    assert b"version" in headers["reason"]


def test_dead_letters_are_listed_and_put_back(make_settings, redis_client):
    """After the repair a replay puts the record back into its topic, and it waits no longer."""
    settings = make_settings(database_url="")
    publish(settings, [Record(LOW.topic, b"not yet", partition=0)])
    letters = DeadLetters(Publisher(settings), TopicReader(settings, DEAD_LETTER_TOPIC, "arauto-bridge.replay"))
    with bridge(settings):
        [letter] = eventually(letters.list, seconds=30)
    assert (letter.topic, letter.partition, letter.offset, letter.value) == (LOW.topic, 0, 0, b"not yet")
    assert letters.replay(["9-9"]) == 0
    assert letters.replay() == 1
    assert letters.list() == []
    assert [record.value() for record in read_topic(settings.kafka_bootstrap_servers, LOW.topic)] == [
        b"not yet"
    ] * 2


def test_a_run_of_poison_holds_the_topic(make_settings, redis_client):
    """A bad deploy does not drain the topic: after the limit nothing is set aside or committed any more."""
    settings = make_settings(database_url="", bridge_poison_stop=5, bridge_batch=2)
    publish(settings, [Record(LOW.topic, b"?%d" % number, partition=0) for number in range(30)])
    with bridge(settings):
        eventually(lambda: len(read_topic(settings.kafka_bootstrap_servers, DEAD_LETTER_TOPIC)) >= 4, seconds=30)
        never(lambda: len(read_topic(settings.kafka_bootstrap_servers, DEAD_LETTER_TOPIC)) > 5, seconds=2.0)


def test_what_lies_before_a_run_of_poison_does_not_wait_for_an_operator(make_settings, redis_client):
    """Fails when the whole batch is held: good ids in front of the run would be neither sent nor rescued."""
    settings = make_settings(database_url="", bridge_poison_stop=5)
    good = records(8, partition=0)
    poison = [Record(LOW.topic, b"?%d" % number, partition=0) for number in range(30)]
    publish(settings, good + poison)
    with bridge(settings):
        eventually(lambda: carried(redis_client) == [record.key for record in good], seconds=30)
        never(lambda: read_topic(settings.kafka_bootstrap_servers, DEAD_LETTER_TOPIC), seconds=1.0)


def test_a_long_list_pauses_the_topic_until_it_is_short(make_settings, redis_client):
    """Kafka holds the excess: above the high-water mark nothing is added, below half of it everything comes."""
    settings = make_settings(database_url="", bridge_high_water=10)
    redis_client.lpush("low", *(b"x" for _ in range(11)))
    publish(settings, records(20))
    with bridge(settings):
        never(lambda: redis_client.llen("low") > 11, seconds=6.0)
        redis_client.ltrim("low", 0, 3)
        eventually(lambda: redis_client.llen("low") > 4, seconds=20)


def test_two_bridges_share_the_partitions_and_lose_nothing(make_settings, redis_client):
    """Case B07. A second member joins in mid-flow and leaves again: every id is in the list."""
    settings = make_settings(database_url="", bridge_batch=20)
    ids = publish(settings, records(400))
    with bridge(settings):
        eventually(lambda: carried(redis_client), seconds=30)
        with bridge(settings):
            ids += publish(settings, records(400))
            eventually(lambda: len(set(carried(redis_client))) >= 700, seconds=40)
        ids += publish(settings, records(100))
        eventually(lambda: set(carried(redis_client)) == set(ids), seconds=40)


def test_a_marker_comes_behind_its_partition_and_only_a_worker_makes_it_count(
    make_settings, redis_client, engine, database_url
):
    """Relay → Kafka → bridge → list: each marker's task stands behind all ids that were published before it.

    While no worker has run the marker's task nothing counts as lost. Fails under a rescue by the bridge's mark
    (a `flow_mark` written where the bridge pushes the marker's task).
    """
    settings = make_settings()
    outlet = kafka_outlet(settings)
    ids = add_due(engine, 500)
    with relay_on(database_url, outlet) as relay:
        relay.run(Priority.LOW)
    assert states(engine, ids) == {"QUEUED": 500}
    make_markers(engine, outlet).emit(Priority.LOW, outlet.partitions(Priority.LOW), 10.0)
    last = sql(engine, "SELECT last_value FROM flow_seq")[0][0]

    def marks():
        bodies = [json.loads(json.loads(task)["body"])[1] for task in in_list(redis_client, "low")]
        return [body for body in bodies if "seq" in body and body["seq"] == last]

    with bridge(settings):
        eventually(lambda: len(marks()) == outlet.partitions(Priority.LOW), seconds=30)
    tasks = in_list(redis_client, "low")
    kinds = [json.loads(task)["headers"]["task"] for task in tasks]
    final = len(kinds) - 1 - kinds[::-1].index(TASK_MARK)
    assert {identifier for task in tasks[: final + 1] for identifier in ids_in(task)} == set(ids)
    rescue = RescueQueued(engine, outlet, hold_seconds=0.0, limit=5)
    assert rescue.run_once() == 0
    for mark in marks():
        sql(engine, "INSERT INTO flow_mark VALUES (%(topic)s, %(partition)s, %(seq)s)", **_three(mark))
    assert rescue.run_once() == 500, "now that the markers came through, what no worker claimed is lost"


def _three(mark):
    return {name: mark[name] for name in ("topic", "partition", "seq")}


def test_a_broken_loop_is_built_anew(make_settings, redis_client, monkeypatch):
    """An unexpected fault in the loop costs a moment, not the process."""
    settings = make_settings(database_url="")
    faults = [RuntimeError("a bug")]

    def faulty(*arguments):
        if faults:
            raise faults.pop()
        return topic_loop(*arguments)

    monkeypatch.setattr("app.bridge.supervise.topic_loop", faulty)
    ids = publish(settings, records(5))
    with bridge(settings):
        eventually(lambda: sorted(carried(redis_client)) == sorted(ids), seconds=30)


def test_a_rescued_row_travels_alone(make_settings, redis_client, engine, database_url):
    """The envelope says how often a message was lost, and the bridge isolates such an id."""
    settings = make_settings()
    add_due(engine, 1)
    lost = add_due(engine, 1)
    change(engine, lost, rescues=1)
    with relay_on(database_url, kafka_outlet(settings)) as relay:
        relay.run(Priority.LOW)
    with bridge(settings):
        eventually(lambda: len(carried(redis_client)) == 2, seconds=30)
    suspects = [
        body["ids"]
        for task in in_list(redis_client, "low")
        if (body := json.loads(json.loads(task)["body"])[1]).get("suspect")
    ]
    assert suspects == [lost]
