"""The nudge against a real Valkey: coalescing, and what it costs its caller when the broker is away."""

import json
import socket
import time

import pytest
import redis

from app.domain.kinds import Priority
from app.queues import TASK_RELAY
from app.services.nudge import Nudge
from app.wiring import broker_client
from tests.pipeline_parts import in_list

pytestmark = pytest.mark.timeout(60)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def settings(make_settings):
    return make_settings(database_url="", kafka_bootstrap_servers="127.0.0.1:1")


def test_many_commits_make_one_task_until_the_relay_takes_it(settings, redis_client):
    """Many commits wake the relay once; what commits after it began to look wakes it again."""
    clock = Clock()
    nudge = Nudge(broker_client(settings, timeout_seconds=1.0), clock)
    for _ in range(40):
        nudge.nudge(Priority.HIGH)
        clock.now += 0.01
    [task] = in_list(redis_client, "relay")
    assert json.loads(task)["headers"]["task"] == TASK_RELAY
    assert json.loads(json.loads(task)["body"])[1] == {"v": 1, "priority": "HIGH"}
    nudge.taken(Priority.HIGH)
    clock.now += 0.01
    nudge.nudge(Priority.HIGH)
    assert redis_client.llen("relay") == 2


def test_priorities_do_not_share_a_nudge(settings, redis_client):
    """A nudge for LOW does not swallow one for HIGH."""
    nudge = Nudge(broker_client(settings, timeout_seconds=1.0))
    for priority in Priority:
        nudge.nudge(priority)
    assert redis_client.llen("relay") == 3


def test_a_lost_task_does_not_silence_nudges_for_long(settings, redis_client):
    """The guard ends by itself, so a relay list that was flushed or never read costs three seconds."""
    Nudge(broker_client(settings, timeout_seconds=1.0)).nudge(Priority.HIGH)
    assert 0 < redis_client.pttl("arauto:nudge:HIGH") <= 3000


def test_a_paused_broker_delays_one_caller_a_little_and_the_next_ones_not_at_all(settings, redis_client):
    """Case A13. The broker stops answering: the first nudge gives up soon, the others return at once."""
    nudge = Nudge(broker_client(settings, timeout_seconds=0.25))
    redis_client.execute_command("CLIENT", "PAUSE", "3000", "WRITE")
    try:
        began = time.monotonic()
        nudge.nudge(Priority.HIGH)
        first = time.monotonic() - began
        began = time.monotonic()
        for _ in range(100):
            nudge.nudge(Priority.NORMAL)
        others = (time.monotonic() - began) / 100
    finally:
        redis_client.execute_command("CLIENT", "UNPAUSE")
    assert first < 2.0
    assert others < 0.005


def test_a_broker_that_is_not_there_raises_nothing(make_settings):
    """Case A13. Nobody listens: the request that was just committed must not fail for it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"
        settings = make_settings(database_url="", redis_url=url, kafka_bootstrap_servers="127.0.0.1:1")
        nudge = Nudge(broker_client(settings, timeout_seconds=0.25))
        nudge.nudge(Priority.HIGH)
        nudge.taken(Priority.HIGH)


def test_the_broker_client_never_retries(settings, redis_client):
    """A retry inside the client would multiply every time-out."""
    client = broker_client(settings, timeout_seconds=0.2)
    client.ping()
    redis_client.execute_command("CLIENT", "PAUSE", "2000", "ALL")
    began = time.monotonic()
    with pytest.raises(redis.RedisError):
        client.get("x")
    assert time.monotonic() - began < 1.0
