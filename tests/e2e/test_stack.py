"""`arauto up` from outside: ready, run.json, a first notification, restarts, stops, and kill -9 of everything."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.queues import LANES
from tests.e2e.stack import Stack, is_running, marked
from tests.stream_client import Follower, publish
from tests.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NAMES = {"postgres", "valkey", "kafka", "sandbox", "api", "stream", "beat", "relay", "bridge", "flower"}
NAMES |= {f"worker-{lane.queue}" for lane in LANES.values()}


@pytest.mark.kafka
def test_a_stack_on_apache_kafka_from_the_first_start_to_a_start_after_kill_9(tmp_path: Path) -> None:
    """Ready, run.json complete, a message sent; a killed API comes back; Ctrl-C leaves nothing.

    Then a second start on the same data, kill -9 of everything with a message accepted and not sent, and a third
    start that sends it.
    """
    data = tmp_path / "stack"
    with Stack(data).until_ready() as stack:
        assert set(stack.info) == {
            *("api", "flower", "sandbox", "token", "database_url", "redis_url", "kafka_bootstrap", "broker"),
            *("stream", "processes"),
        }
        assert stack.info["broker"] == "kafka"
        pids = stack.pids
        assert set(pids) == NAMES
        assert all(map(is_running, pids.values()))

        with Follower(int(stack.info["stream"].rpartition(":")[2]), stack.bearer, user_id="42") as inbox:
            inbox.until("sync")
            publish(stack.info["redis_url"], "42", "n1")
            inbox.until("created")

        first = stack.accept("first")
        eventually(lambda: stack.has_sent(first), seconds=20)

        second = _up(data)
        assert second.returncode == 2
        assert f"pid {stack.process.pid}" in second.stdout

        os.kill(pids["api"], signal.SIGKILL)
        eventually(lambda: stack.pids.get("api") not in {None, pids["api"]}, seconds=30)
        again = eventually(lambda: _accepted(stack), seconds=60, every_seconds=0.5)
        eventually(lambda: stack.has_sent(again), seconds=20)

        pids = stack.pids
        assert stack.stop(signal.SIGINT) == 0
    assert not [name for name, pid in pids.items() if is_running(pid)]
    assert not marked(data)
    assert not (data / "run.json").exists()

    with Stack(data).until_ready() as stack:
        os.kill(stack.pids["beat"], signal.SIGSTOP)
        os.kill(stack.pids["relay"], signal.SIGSTOP)
        waiting = stack.accept("before kill -9")
        stack.kill_everything()

    with Stack(data).until_ready() as stack:
        eventually(lambda: stack.has_sent(waiting), seconds=60)
        assert stack.stop(signal.SIGHUP) == 0  # its terminal was closed
    assert not marked(data)


def test_a_second_stack_beside_the_first_on_the_light_broker(tmp_path: Path) -> None:
    """Two folders are two stacks with ports of their own; a broker that loses all it had costs nothing."""
    options = ("--broker", "light")
    with Stack(tmp_path / "one", *options) as one, Stack(tmp_path / "two", *options) as two:
        one.until_ready()
        two.until_ready()
        assert one.info["broker"] == two.info["broker"] == "light"
        for name in ("api", "stream", "database_url", "redis_url", "sandbox", "flower", "kafka_bootstrap"):
            assert one.info[name] != two.info[name]
        accepted = one.accept("only here")
        eventually(lambda: one.has_sent(accepted), seconds=30)
        assert not two.has_sent(accepted)

        before = one.info["kafka_bootstrap"]
        os.kill(one.pids["kafka"], signal.SIGKILL)
        eventually(lambda: one.info["kafka_bootstrap"] not in {before, ""}, seconds=30)
        eventually(lambda: "starting anew" in one.output.read_text(), seconds=30)
        after = eventually(lambda: _accepted(one), seconds=60, every_seconds=0.5)
        eventually(lambda: one.has_sent(after), seconds=90)
        assert two.stop(signal.SIGTERM) == 0
        assert one.stop(signal.SIGTERM) == 0
    assert not marked(tmp_path / "one")
    assert not marked(tmp_path / "two")


def _accepted(stack: Stack) -> dict[str, object] | None:
    try:
        return stack.accept("after a fault")
    except OSError:
        return None


def _up(data: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "app.cli", "up", "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
