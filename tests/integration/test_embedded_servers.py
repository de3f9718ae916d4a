"""The embedded PostgreSQL, Valkey and light broker: start, stop, kill, and start again with what was there."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg2
import pytest
import redis
from confluent_kafka import Consumer, Producer

from embedded.light_broker import LightBroker
from embedded.postgres import Postgres
from embedded.server import Server
from embedded.valkey import Valkey
from tests.waiting import eventually


def _run(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_postgres_keeps_its_data_over_a_stop_and_a_kill(tmp_path: Path) -> None:
    """A row written before a clean stop and one written before kill -9 are both there after the next starts."""
    server = Postgres(tmp_path / "postgres")
    with server:
        _run(server.url, "CREATE TABLE note (text text)")
        _run(server.url, "INSERT INTO note VALUES ('before the stop')")
    server.start()
    _run(server.url, "INSERT INTO note VALUES ('before the kill')")
    server.kill()
    server.start()
    try:
        assert _run(server.url, "SELECT count(*) FROM note") == [(2,)]
    finally:
        server.stop()


def test_postgres_starts_although_its_lock_names_a_living_stranger(tmp_path: Path) -> None:
    """After kill -9 the old pid may belong to another program; the lock file must not keep the server down."""
    server = Postgres(tmp_path / "postgres", is_durable=False)
    with server:
        pass
    (tmp_path / "postgres" / "postmaster.pid").write_text(f"{os.getppid()}\n{tmp_path}/postgres\n")
    with server:
        assert server.is_ready()


def test_postgres_begins_anew_when_its_first_start_was_interrupted(tmp_path: Path) -> None:
    """A half-made cluster is made again rather than failing for ever."""
    data = tmp_path / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text("18\n")
    with Postgres(data, is_durable=False) as server:
        assert _run(server.url, "SELECT current_user") == [("arauto",)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_postgres_of_root_runs_as_an_ordinary_user_inside_a_closed_folder(tmp_path: Path) -> None:
    """Root's home is closed to others; the server still starts there and the folder keeps its mode."""
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    with Postgres(closed / "postgres", is_durable=False) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
    assert closed.stat().st_mode & 0o777 == 0o700


def test_valkey_keeps_its_data_over_a_stop(tmp_path: Path) -> None:
    """Celery's lists outlive a restart of the stack."""
    server = Valkey(tmp_path / "valkey")
    for expected in (1, 2):
        with server, redis.Redis.from_url(server.url) as client:
            assert client.lpush("list", "x") == expected


def test_light_broker_carries_a_message_and_forgets_it_when_restarted(tmp_path: Path) -> None:
    """It speaks the protocol over TCP; after a restart it is empty and has another address."""
    broker = LightBroker(tmp_path / "broker")
    with broker:
        first = broker.bootstrap
        producer = Producer({"bootstrap.servers": first})
        producer.produce("notifications.high", b"id")
        assert producer.flush(10) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": first,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe(["notifications.high"])
        message = eventually(lambda: consumer.poll(0.2), seconds=20)
        assert message.value() == b"id"
        consumer.close()
    with broker:
        assert broker.bootstrap != first


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: Postgres(folder / "data", is_durable=False),
        lambda folder: Valkey(folder / "data"),
        lambda folder: LightBroker(folder / "data"),
    ],
    ids=["postgres", "valkey", "light broker"],
)
def test_a_stopped_server_leaves_no_process(tmp_path: Path, make: Callable[[Path], Server]) -> None:
    """Stop means gone: the process and whatever it had started."""
    server = make(tmp_path)
    server.start()
    pid = server.pid
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, signal.SIG_DFL)
