"""The producer: verdicts by delivery report only, forks, fatal errors, brokers that refuse or are gone."""

import os
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from app.domain.kinds import Priority
from app.kafka.producer import Publisher, Record
from app.kafka.topics import KafkaUnavailableError, ensure_topics
from app.queues import LANES, TOPIC_LANES
from embedded.light_broker import LightBroker
from tests.pipeline_parts import add_due, kafka_outlet, read_topic, relay_on, states
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(90)

LOW = LANES[Priority.LOW].topic

FORKING = """
import os
from app.kafka.producer import Publisher, Record
from app.settings import Settings

publisher = Publisher(Settings(_env_file=None))
assert publisher.publish([Record("notifications.low", b"parent")], 10.0) == [None]
child = os.fork()
if child == 0:
    os._exit(0 if publisher.publish([Record("notifications.low", b"child")], 10.0) == [None] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert publisher.publish([Record("notifications.low", b"parent")], 10.0) == [None]
"""


def test_every_record_has_its_own_verdict(make_settings):
    """None for what was acknowledged, a refusal that blames the record for what is too large."""
    settings = make_settings(database_url="", redis_url="")
    ensure_topics(settings)
    publisher = Publisher(settings)
    good, large = Record(LOW, b"good", "k"), Record(LOW, b"x" * 2_000_000, "k")
    verdicts = publisher.publish([good, large, good], 10.0)
    assert [verdict is None for verdict in verdicts] == [True, False, True]
    assert verdicts[1].about_record
    assert verdicts[1].reason == "kafka: MSG_SIZE_TOO_LARGE"
    publisher.close()


def test_a_dead_broker_refuses_in_time(make_settings, tmp_path):
    """No broker: every record is refused when the time is over, and none is blamed for it."""
    with LightBroker(tmp_path / "broker") as broker:
        settings = make_settings(
            database_url="",
            redis_url="",
            kafka_bootstrap_servers=broker.bootstrap,
            relay_acknowledge_seconds=2.0,
        )
        ensure_topics(settings)
        publisher = Publisher(settings)
        assert publisher.publish([Record(LOW, b"x")], 2.0) == [None]
        broker.kill()
        verdicts = publisher.publish([Record(LOW, b"x")] * 3, 2.0)
    assert [verdict.about_record for verdict in verdicts] == [False] * 3
    assert publisher.partitions(LOW, 0.5) is None
    with pytest.raises(KafkaUnavailableError):
        ensure_topics(settings, 0.5)


def test_a_forked_child_gets_its_own_producer(make_settings):
    """Case B03. A producer that was used before a fork works in the child too: it is built per process id."""
    settings = make_settings(database_url="", redis_url="")
    ensure_topics(settings)
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers}
    assert (
        subprocess.run([sys.executable, "-c", FORKING], check=False, env=environment, timeout=60).returncode == 0
    )
    values = [record.value() for record in read_topic(settings.kafka_bootstrap_servers, LOW)]
    assert values.count(b"child") == 1


def test_a_fatal_error_replaces_the_producer(make_settings):
    """Case B05. After a fatal error the next publication uses a new client; the old one would refuse for ever."""
    settings = make_settings(database_url="", redis_url="")
    ensure_topics(settings)
    publisher = Publisher(settings)
    assert publisher.publish([Record(LOW, b"before")], 10.0) == [None]
    broken = publisher._producer
    publisher._on_error(KafkaError(KafkaError._FATAL, "sequence", fatal=True))
    assert publisher.publish([Record(LOW, b"after")], 10.0) == [None]
    assert publisher._producer is not broken


def test_rows_survive_a_broker_that_is_killed_and_comes_back_empty(make_settings, engine, database_url, tmp_path):
    """The broker dies: rows stay PENDING at no cost. Another one comes: its topics are made, rows published."""
    with LightBroker(tmp_path / "broker") as broker:
        settings = make_settings(
            redis_url="", kafka_bootstrap_servers=broker.bootstrap, relay_acknowledge_seconds=2.0
        )
        outlet = kafka_outlet(settings)
        broker.kill()
        ids = add_due(engine, 50)
        with relay_on(database_url, outlet) as relay:
            assert relay.run(Priority.LOW) == 0
    assert states(engine, ids) == {"PENDING": 50}
    with LightBroker(tmp_path / "other") as other:
        settings = make_settings(redis_url="", kafka_bootstrap_servers=other.bootstrap)
        with relay_on(database_url, kafka_outlet(settings)) as relay:
            assert relay.run(Priority.LOW) == 50
        keys = [record.key() for record in read_topic(other.bootstrap, LOW)]
        assert sorted(key.decode() for key in keys if key is not None) == sorted(ids), "markers have no key"


@pytest.mark.kafka
def test_topics_are_made_once_with_their_partitions(make_settings, kafka_bootstrap):
    """Apache Kafka gets 12, 6 and 2 partitions, and a second start changes nothing."""
    settings = make_settings(database_url="", redis_url="", kafka_bootstrap_servers=kafka_bootstrap)
    ensure_topics(settings)
    assert ensure_topics(settings) == []
    found = AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=10).topics
    assert {topic: len(found[topic].partitions) for topic in TOPIC_LANES} == {
        lane.topic: lane.partitions for lane in LANES.values()
    }


@pytest.mark.kafka
def test_what_only_the_broker_refuses_is_told_by_the_report(make_settings, kafka_bootstrap):
    """Case B01. `produce` and `flush` look fine, since only the broker knows its limit; the verdict does not.

    The report's own input, more replicas wanted than there are, is acknowledged by Kafka 4: it counts with the
    lesser of both.
    """
    settings = make_settings(database_url="", redis_url="", kafka_bootstrap_servers=kafka_bootstrap)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic("narrow", 1, 1, config={"max.message.bytes": "500"})])["narrow"].result(10)
    publisher = Publisher(settings)
    eventually(lambda: publisher.partitions("narrow") == 1)
    [verdict] = publisher.publish([Record("narrow", os.urandom(2000))], 10.0)
    assert verdict is not None
    assert verdict.reason == "kafka: MSG_SIZE_TOO_LARGE"
    assert publisher.publish([Record("narrow", b"small")], 10.0) == [None]


@pytest.mark.kafka
def test_a_partition_that_is_added_is_seen(make_settings, kafka_bootstrap):
    """Case B13. Markers go to as many partitions as the cluster names now, not to those at the start."""
    settings = make_settings(database_url="", redis_url="", kafka_bootstrap_servers=kafka_bootstrap)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic("growing", 3, 1)])["growing"].result(10)
    publisher = Publisher(settings)
    eventually(lambda: publisher.partitions("growing") == 3)
    admin.create_partitions([NewPartitions("growing", 6)])["growing"].result(10)
    eventually(lambda: publisher.partitions("growing") == 6, seconds=20)
    marks = [Record("growing", b"mark", partition=number) for number in range(6)]
    eventually(lambda: publisher.publish(marks, 5.0) == [None] * 6, seconds=30)
