"""Real Celery worker processes: kills, signals, acknowledgement and countdowns, with a lease of seconds."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen
from uuid import uuid4

import pytest
import redis
from celery import Celery
from kombu import Queue

from app.domain.kinds import Channel, Priority
from app.domain.uncertainty import Policy
from app.services.rescue_sending import RescueSending
from app.services.resolve import Resolve
from app.wiring_pipeline import relay_services
from embedded.ports import free_port
from embedded.processes import Child, Launch, tail
from embedded.valkey import Valkey
from tests import delivery_rows as rows
from tests.waiting import eventually, never

pytestmark = pytest.mark.e2e

OK = "+447700900000"
SLOW = "+447700900225"
NEVER = "+447700900408"
ONCE_BUSY = "+447700900153"


class Worker:
    """One `celery worker` process on the test's servers, and a sender of its tasks."""

    def __init__(self, child: Child, sender: Celery, log) -> None:
        self.child = child
        self.log = log
        self._sender = sender

    def deliver(self, ids, *, channel=Channel.SMS, queue="low", suspect=False) -> None:
        """Send one chunk."""
        arguments = {"v": 1, "chunk": uuid4().hex, "channel": channel.value, "ids": ids, "suspect": suspect}
        self._sender.send_task("arauto.deliver.v1", kwargs=arguments, queue=queue)

    def send(self, name, **arguments) -> None:
        """Send any task to the LOW queue."""
        self._sender.send_task(name, kwargs={"v": 1, **arguments}, queue="low")

    def is_ready(self) -> bool:
        """Tell whether the worker consumes."""
        assert self.child.poll() is None, tail(self.log)
        return "ready" in self.log.read_text(errors="replace")


@pytest.fixture
def start_worker(database_url, redis_url, sandbox, tmp_path):
    """A factory of running LOW workers; each is killed at the end."""
    children: list[Child] = []
    senders: list[Celery] = []

    def start(application: str = "tasks", **settings: str) -> Worker:
        log = tmp_path / f"worker-{len(children)}.log"
        environment = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SANDBOX_URL": sandbox.url,
            "SANDBOX_SMTP_URL": sandbox.smtp_url,
            "PROVIDER_TIMEOUT_SECONDS": "3",
            "LEASE_MARGIN_SECONDS": "1.5",
            "LEASE_MINIMUM_SECONDS": "1",
            **{name.upper(): value for name, value in settings.items()},
        }
        sender = Celery("test", broker=environment["REDIS_URL"], set_as_current=False)
        sender.conf.task_queues = [Queue(name, routing_key=name) for name in ("high", "normal", "low")]
        senders.append(sender)
        command = [sys.executable, "-m", "celery", "-A", application, "worker", "-Q", "low", "-c", "2"]
        command += ["-n", f"test{len(children)}@%h", "-l", "INFO"]
        child = Child(Launch(command, log, environment))
        children.append(child)
        worker = Worker(child, sender, log)
        eventually(worker.is_ready, seconds=60, why=tail(log))
        return worker

    yield start
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
    for sender in senders:
        sender.close()


def recover(engine, policy: Policy = Policy.HOLD) -> None:
    """Run the sweeps that beat would run, with windows that are over at once."""
    RescueSending(engine, 0.0, 0.0, 4.5).run_once()
    pairs = [(channel, priority) for channel in Channel for priority in Priority]
    Resolve(engine, pairs if policy is Policy.RESEND else []).run_once()


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_chunk_and_a_marker_come_through_a_real_worker(start_worker, engine):
    """The plain way, by task names alone; the marker is written down after what was before it."""
    worker = start_worker()
    ids = rows.add(engine, 40)
    worker.deliver(ids)
    worker.send("arauto.mark.v1", topic="notifications.low", partition=1, seq=77)
    eventually(lambda: rows.statuses(engine, ids) == {"SENT": 40}, seconds=30)

    def marked():
        with engine.connect() as connection:
            return connection.exec_driver_sql("SELECT topic, partition, seq FROM flow_mark").fetchall()

    assert eventually(marked) == [("notifications.low", 1, 77)]


@pytest.mark.parametrize(("policy", "status"), [(Policy.HOLD, "FAILED"), (Policy.RESEND, "PENDING")])
def test_kill_9_in_the_call_leaves_a_doubt_that_the_policy_decides(start_worker, engine, sandbox, policy, status):
    """Case A05. Fails under `rescue SENDING to PENDING`: `hold` would send again what may have been accepted."""
    worker = start_worker()
    ids = rows.add(engine, 3, recipient=SLOW)
    worker.deliver(ids)
    eventually(lambda: rows.statuses(engine, ids) == {"SENDING": 3}, seconds=30)
    worker.child.kill()

    def decided():
        recover(engine, policy)
        return rows.statuses(engine, ids) == {status: 3}

    eventually(decided, seconds=20)
    found = [rows.row(engine, id_) for id_ in ids]
    assert {(row["attempts"], row["uncertain"]) for row in found} == {(1, True)}
    assert [entry["outcome"] for entry in rows.attempts(engine, ids[0])] == ["worker_lost"]


def test_sigterm_hands_back_what_waits_and_finishes_what_runs(start_worker, engine):
    """Case A05. Nothing is called twice afterwards, nothing waits for a lease; a second SIGTERM does no harm."""
    worker = start_worker(worker_window="5")
    ids = rows.add(engine, 40, recipient=SLOW)
    worker.deliver(ids)
    eventually(lambda: rows.statuses(engine, ids).get("SENDING") == 5, seconds=30)
    os.kill(worker.child.pid, signal.SIGTERM)
    eventually(lambda: rows.statuses(engine, ids).get("PENDING") == 35, seconds=10)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.child.pid, signal.SIGTERM)
    eventually(lambda: worker.child.poll() is not None, seconds=30)
    assert rows.statuses(engine, ids) == {"SENT": 5, "PENDING": 35}
    assert "Traceback" not in worker.log.read_text(errors="replace")


def test_a_worker_serves_its_metrics(start_worker, engine):
    """What it sent and what it holds can be scraped; nobody else knows it."""
    port = free_port()
    worker = start_worker(metrics_port=str(port))
    worker.deliver(rows.add(engine, 7))

    def sent() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        assert 'worker_parked{channel="SMS"} 0.0' in lines
        assert 'worker_in_flight{channel="SMS"} 0.0' in lines
        return any(line.startswith("notification_sent_total{") and line.endswith(" 7.0") for line in lines)

    eventually(sent, seconds=30)


def test_a_hanging_recipient_does_not_hold_up_the_others(start_worker, engine):
    """Case A17. The pool has no time limits; the adapter's own deadline frees the place."""
    worker = start_worker(worker_window="10")
    hanging, good = rows.add(engine, 5, recipient=NEVER), rows.add(engine, 60)
    worker.deliver(hanging + good)
    eventually(lambda: rows.statuses(engine, good) == {"SENT": 60}, seconds=30)
    eventually(lambda: rows.statuses(engine, hanging) == {"UNKNOWN": 5}, seconds=20)


def test_a_retry_comes_back_by_its_countdown_alone(start_worker, engine):
    """No relay runs here: the second call is the countdown's, about two seconds after the first."""
    worker = start_worker()
    ids = rows.add(engine, 1, recipient=ONCE_BUSY)
    worker.deliver(ids)
    eventually(lambda: rows.row(engine, ids[0])["status"] == "SENT", seconds=30)
    first, second = rows.attempts(engine, ids[0])
    assert 1.4 <= (second["started_at"] - first["started_at"]).total_seconds() <= 4.5


def test_two_workers_and_a_repeated_message_make_one_call(start_worker, engine, sandbox):
    """Case A01. Fails under `claim without CAS`."""
    first, second = start_worker(), start_worker()
    ids = rows.add(engine, 50)
    for worker in (first, second, first, second):
        worker.deliver(ids)
    eventually(lambda: rows.statuses(engine, ids) == {"SENT": 50}, seconds=30)
    never(lambda: sandbox.stats()["duplicates"], seconds=1.0)


def test_a_worker_paused_beyond_its_lease_does_not_begin_the_call(start_worker, engine, sandbox):
    """Fails under `no fence`. It is stopped with rows in hand, rescue decides, and then it goes on."""
    worker = start_worker(worker_window="200", sms_rate_per_second="100000")
    ids = rows.add(engine, 200)
    worker.deliver(ids)
    eventually(lambda: rows.statuses(engine, ids).get("QUEUED", 0) < 200, seconds=30, every_seconds=0.002)
    with paused(worker.child.pid):
        eventually(lambda: not (recover(engine) or rows.statuses(engine, ids).get("SENDING")), seconds=20)
        before = rows.statuses(engine, ids)
    eventually(lambda: "SENDING" not in rows.statuses(engine, ids), seconds=20)
    assert sandbox.stats()["duplicates"] == 0
    assert before


def test_a_rendering_that_kills_its_worker_ends_undeliverable(start_worker, engine):
    """Case A07. A worker that a template takes down is started again, three times; then the row is set aside."""
    bad, good = rows.add(engine, 1, body="deadly"), rows.add(engine, 20)
    for _ in range(3):
        worker = start_worker("tests.e2e.deadly_worker")
        worker.deliver(bad, suspect=True)
        eventually(lambda w=worker: w.child.poll() is not None, seconds=30)
    worker = start_worker("tests.e2e.deadly_worker")
    worker.deliver(bad, suspect=True)
    worker.deliver(good)
    eventually(lambda: rows.row(engine, bad[0])["status"] == "FAILED", seconds=30)
    eventually(lambda: rows.statuses(engine, good) == {"SENT": 20}, seconds=30)
    assert rows.row(engine, bad[0])["error_code"] == "undeliverable"


def test_a_worker_consumes_again_after_its_broker_dropped_it(
    start_worker, engine, make_settings, sandbox, tmp_path
):
    """Case A03. Three drops in three seconds and a restart: the worker takes new tasks, and no old one is lost.

    What a dropped connection took with it is found by a marker and published again, as in the whole pipeline.
    """
    with Valkey(tmp_path / "valkey", free_port()) as broker, redis.Redis.from_url(broker.url) as client:
        settings = make_settings(
            redis_url=broker.url,
            kafka_bootstrap_servers="127.0.0.1:1",
            transport="direct",
            bridge_chunk_low=1,
            rate_wait_seconds=1.0,
            rescue_hold_seconds=2.0,
        )
        pipeline = relay_services.__wrapped__(settings)
        worker = start_worker(redis_url=broker.url, rate_wait_seconds="1", rescue_hold_seconds="2")
        ids = rows.add(engine, 200, status="PENDING")
        assert pipeline.relay.run(Priority.LOW) == 200
        for _ in range(3):
            client.client_kill_filter(_type="normal", skipme=True)
            never(lambda: worker.child.poll() is not None, seconds=0.9)
        broker.stop()
        broker.start()
        fresh = rows.add(engine, 30, status="PENDING")

        def all_sent(which: list[str]) -> bool:
            pipeline.relay.run(Priority.LOW)
            pipeline.markers.emit(Priority.LOW, 1, 2.0)
            pipeline.rescue_queued.run_once()
            return rows.statuses(engine, which) == {"SENT": len(which)}

        eventually(lambda: all_sent(fresh), seconds=30, every_seconds=0.5, why="it takes no new task")
        eventually(lambda: all_sent(ids), seconds=30, every_seconds=0.5, why="old tasks are lost")
        assert worker.child.poll() is None
    assert sandbox.stats()["duplicates"] == 0
