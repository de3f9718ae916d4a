"""Apache Kafka from packages: pinned jars, start, stop, kill -9, and an empty data folder while it was down."""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from embedded import jars
from embedded.kafka import Kafka
from embedded.server import ServerError
from tests.waiting import eventually


def _say(_: str) -> None:
    return


def _make_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 2)]).values():
        made.result(20)


def _produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(20) == 0


def _read(bootstrap: str, topic: str, count: int) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: set[bytes] = set()

    def has_all() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.add(message.value())
        return len(seen) == count

    try:
        eventually(has_all, seconds=30)
    finally:
        consumer.close()
    return seen


@pytest.mark.kafka
def test_kafka_keeps_messages_over_a_stop_and_a_kill_and_starts_after_a_wipe(tmp_path: Path) -> None:
    """What was acknowledged before a stop and before kill -9 is read after it; a wiped folder is made anew."""
    server = Kafka(tmp_path / "kafka")
    with server:
        _make_topic(server.bootstrap, "t")
        _produce(server.bootstrap, "t", b"before the stop")
    server.start()
    _produce(server.bootstrap, "t", b"before the kill")
    server.kill()
    server.start()
    assert _read(server.bootstrap, "t", 2) == {b"before the stop", b"before the kill"}
    server.kill()
    shutil.rmtree(tmp_path / "kafka")
    server.start()
    try:
        assert "t" not in AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=10).topics
    finally:
        server.stop()


class _Repository(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """An empty Maven repository over HTTP: its folder and its address."""
    folder = tmp_path / "repository"
    folder.mkdir()
    handler = functools.partial(_Repository, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _put(folder: Path, jar: jars.Jar, content: bytes) -> None:
    place = folder / jar.group.replace(".", "/") / jar.artifact / jar.version
    place.mkdir(parents=True)
    (place / jar.file_name).write_bytes(content)


_WORD_SHA256 = "486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7"  # of b"world"


def test_a_jar_is_fetched_from_a_chosen_repository_once_and_checked(
    tmp_path: Path, repository: tuple[Path, str]
) -> None:
    """Without Maven the wheel fetches; a second start with an intact cache asks nobody."""
    folder, address = repository
    jar = jars.Jar("com.example", "thing", "1.0", _WORD_SHA256)
    _put(folder, jar, b"world")
    jars.fetch([jar], tmp_path / "cache", address, _say)
    assert (tmp_path / "cache" / "thing-1.0.jar").read_bytes() == b"world"
    shutil.rmtree(folder)
    jars.fetch([jar], tmp_path / "cache", address, _say)


def test_a_jar_with_another_sum_is_refused(tmp_path: Path, repository: tuple[Path, str]) -> None:
    """A changed file never gets onto the class path, and the message names it."""
    folder, address = repository
    jar = jars.Jar("com.example", "thing", "1.0", _WORD_SHA256)
    _put(folder, jar, b"changed")
    with pytest.raises(ServerError, match="another SHA-256"):
        jars.fetch([jar], tmp_path / "cache", address, _say)
    assert not (tmp_path / "cache" / "thing-1.0.jar").exists()


def test_a_missing_jar_is_an_error_that_says_so(tmp_path: Path, repository: tuple[Path, str]) -> None:
    """A repository without the file ends in one clear error, not in a broken class path."""
    jar = jars.Jar("com.example", "thing", "1.0", _WORD_SHA256)
    with pytest.raises(ServerError, match="could not be had"):
        jars.fetch([jar], tmp_path / "cache", repository[1], _say)


def test_every_pinned_jar_is_named_once_with_its_sum() -> None:
    """The lock file is the whole class path: no duplicates, each line with a SHA-256."""
    pinned = jars.pinned()
    assert len({jar.file_name for jar in pinned}) == len(pinned) > 40
    assert all(len(jar.sha256) == 64 for jar in pinned)
    assert jars.KAFKA in {jar.coordinate for jar in pinned}
