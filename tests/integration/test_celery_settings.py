"""The Celery configuration that the protocol relies on, read by real Celery, kombu and Valkey."""

import os
import subprocess
import sys
import threading

import pytest
from celery.contrib.testing.worker import start_worker

from app.celery_app import celery, make_celery, unsafe_settings
from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from app.queues import BATCH_QUEUE, LANES, RELAY_QUEUE, TASK_DELIVER, TASK_RELAY
from app.services.outlets import DirectOutlet
from app.services.task_list import TaskList, deliver_task, ids_in, mark_task
from tests.pipeline_parts import add_due, in_list, relay_on, states
from tests.waiting import eventually, never

pytestmark = pytest.mark.timeout(120)


def test_the_configuration_keeps_what_the_protocol_relies_on():
    """As it is delivered, nothing in it breaks the protocol; one list a queue, no results, JSON only."""
    assert unsafe_settings(celery.conf) == []
    assert set(celery.amqp.queues) == {lane.queue for lane in LANES.values()} | {RELAY_QUEUE, BATCH_QUEUE}
    assert celery.conf.accept_content == ["json"]
    assert celery.conf.task_ignore_result
    assert celery.conf.result_backend is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task_acks_late", False),
        ("task_reject_on_worker_lost", True),
        ("worker_prefetch_multiplier", 4),
        ("worker_eta_task_limit", 1000),
        ("broker_transport_options", {"priority_steps": [0, 3, 6, 9], "visibility_timeout": 3600.0}),
        ("broker_transport_options", {"priority_steps": [0], "visibility_timeout": 60}),
    ],
)
def test_a_setting_that_breaks_the_protocol_is_named(name, value):
    """Each one is told in a sentence that says what would go wrong."""
    conf = make_celery().conf
    conf[name] = value
    assert len(unsafe_settings(conf)) == 1


@pytest.mark.parametrize("option", [["--prefetch-multiplier", "4"], ["-P", "gevent"]], ids=["prefetch", "pool"])
def test_a_worker_with_such_a_setting_refuses_to_start(redis_url, option):
    """Case A09. `celery -A tasks worker` ends at once, with the reason, before it takes a message."""
    if option[0] == "-P":
        assert unsafe_settings(celery.conf, pool="gevent")
        option = ["-P", "prefork", "--prefetch-multiplier", "2"]
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-Q", "low", "-c", "1", *option],
        env={**os.environ, "REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert "would break the delivery protocol" in ended.stderr + ended.stdout


def test_beat_has_a_tick_a_priority_and_compares_no_clocks():
    """Its messages go to the relay's queue or the expander's; none has an `expires`, which needs equal clocks."""
    schedule = celery.conf.beat_schedule
    relays = [entry for entry in schedule.values() if entry["task"] == TASK_RELAY]
    assert {entry["kwargs"]["priority"] for entry in relays} == {priority.name for priority in Priority}
    queues = [BATCH_QUEUE if name == "expand" else RELAY_QUEUE for name in schedule]
    assert [entry["options"] for entry in schedule.values()] == [{"queue": queue} for queue in queues]


def test_ticks_that_nobody_takes_do_not_pile_up(redis_url, redis_client):
    """Case A15. Beat runs for seconds while no relay does: one tick a priority waits, not one for each missed.

    Fails under Celery's own scheduler: a message every 200 ms and priority.
    """
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "beat"],
        env={**os.environ, "REDIS_URL": redis_url, "RESCUE_INTERVAL_SECONDS": "600"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: redis_client.llen("relay") >= 3, seconds=30)
        never(lambda: redis_client.llen("relay") > 6, seconds=2.5)
    finally:
        beat.terminate()
        assert beat.wait(20) == 0


def test_a_real_worker_runs_what_the_task_list_pushed(redis_url, redis_client):
    """Case A11. Our messages are Celery's and kombu's: run in order, acknowledged, without any binding key."""
    application = make_celery(redis_url)
    seen: list[tuple[str, object]] = []
    done = threading.Event()

    @application.task(name=TASK_DELIVER)
    def deliver(v, chunk, channel, ids, suspect):
        seen.append((channel, ids))
        if channel == "EMAIL":
            done.set()

    ids = [str(identifier) for identifier in mint(3)]
    tasks = [deliver_task("low", Channel.SMS, ids), deliver_task("low", Channel.EMAIL, ids[:1], is_suspect=True)]
    assert ids_in(tasks[0]) == ids
    assert ids_in(mark_task("low", "notifications.low", 0, 1)) == []
    for key in redis_client.keys("_kombu.binding.*"):
        redis_client.delete(key)
    lists = TaskList(redis_client)
    lists.push("low", tasks)
    assert lists.length("low") == 2
    with start_worker(
        application, pool="solo", concurrency=1, perform_ping_check=False, queues=["low"], shutdown_timeout=30
    ):
        assert done.wait(30)
        eventually(lambda: redis_client.hlen("unacked") == 0)
    assert seen == [("SMS", ids), ("EMAIL", ids[:1])]


def test_without_kafka_the_relay_fills_the_lists_itself(engine, database_url, redis_client):
    """TRANSPORT=direct: chunks of one channel straight into the list, and markers behind them."""
    ids = add_due(engine, 120) + add_due(engine, 10, channel=Channel.EMAIL)
    outlet = DirectOutlet(TaskList(redis_client), dict.fromkeys(Priority, 50))
    with relay_on(database_url, outlet) as relay:
        assert relay.run(Priority.LOW) == 130
    assert states(engine, ids) == {"QUEUED": 130}
    tasks = in_list(redis_client, "low")
    assert sorted(len(found) for task in tasks if (found := ids_in(task))) == [10, 20, 50, 50]
    assert ids_in(tasks[-1]) == [], "the marker is the last"


def test_a_list_that_cannot_be_written_leaves_the_rows_pending(engine, database_url, redis_client):
    """Without Kafka too a row is QUEUED only when its task is in the list."""
    redis_client.set("low", "in the way")
    ids = add_due(engine, 5)
    outlet = DirectOutlet(TaskList(redis_client), dict.fromkeys(Priority, 50))
    with relay_on(database_url, outlet) as relay:
        assert relay.run(Priority.LOW) == 0
    assert states(engine, ids) == {"PENDING": 5}
