"""Parts of the relay and the bridge, put together for tests on real servers, and looks into what they carry."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from confluent_kafka import Consumer, TopicPartition
from sqlalchemy.engine import Engine

from app.db.outbox import PLANNER_OPTIONS, Due
from app.db.session import make_engine
from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Publisher, Refusal
from app.kafka.topics import ensure_topics
from app.services.markers import Markers
from app.services.outlets import KafkaOutlet, Outlet
from app.services.relay import Relay, RelayLimits
from app.settings import Settings

LIMITS = RelayLimits(batch=500, budget_seconds=20.0, acknowledge_seconds=5.0, in_pipe={})

_ADD = """
INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority)
SELECT i, i, %(tenant)s, '42', %(channel)s, %(priority)s FROM unnest(%(ids)s::uuid[]) AS i
"""


def add_due(
    engine: Engine,
    count: int,
    *,
    channel: Channel = Channel.SMS,
    priority: Priority = Priority.LOW,
    tenant: str = "demo",
) -> list[str]:
    """Insert `count` PENDING deliveries that are due, without their notifications, which no relay reads."""
    ids = [str(identifier) for identifier in mint(count)]
    with engine.begin() as connection:
        connection.exec_driver_sql(
            _ADD, {"ids": ids, "channel": channel.value, "priority": int(priority), "tenant": tenant}
        )
    return ids


def sql(engine: Engine, statement: str, **values: Any) -> list[tuple[Any, ...]]:
    """Run one statement and commit; return its rows, if it has any."""
    with engine.begin() as connection:
        found = connection.exec_driver_sql(statement, values or None)
        return [tuple(row) for row in found] if found.returns_rows else []


def states(engine: Engine, ids: list[str]) -> dict[str, int]:
    """Return how many of `ids` are in which state."""
    found = sql(engine, "SELECT status, count(*) FROM delivery WHERE id = ANY(%(i)s::uuid[]) GROUP BY 1", i=ids)
    return {row[0]: row[1] for row in found}


class RecordingOutlet:
    """Acknowledges everything and remembers it; `verdict` may refuse, `during` runs inside a publication.

    Pinned to the real outlets by tests/contract/test_outlet_contract.py.
    """

    def __init__(self, partitions: int | None = 1) -> None:
        self.batches: list[tuple[Channel, list[str]]] = []
        self.marks: list[tuple[Priority, int, int]] = []
        self.count: int | None = partitions
        self.verdict: Callable[[Due], Refusal | None] = lambda row: None
        self.during: Callable[[], None] = lambda: None

    @property
    def ids(self) -> list[str]:
        return [identifier for _, ids in self.batches for identifier in ids]

    def publish(
        self, priority: Priority, channel: Channel, rows: Sequence[Due], within_seconds: float
    ) -> list[Refusal | None]:
        verdicts = [self.verdict(row) for row in rows]
        done = [row.id for row, verdict in zip(rows, verdicts, strict=True) if verdict is None]
        self.batches.append((channel, done))
        self.during()
        return verdicts

    def mark(self, priority: Priority, seq: int, partitions: int, within_seconds: float) -> bool:
        self.marks.append((priority, seq, partitions))
        return True

    def partitions(self, priority: Priority) -> int | None:
        return self.count

    def topic(self, priority: Priority) -> str:
        return f"notifications.{priority.name.lower()}"


def make_markers(engine: Engine, outlet: Outlet, **chosen: Any) -> Markers:
    """Markers that wait for nobody's turn, every 5 s."""
    values: dict[str, Any] = {"interval_seconds": 5.0, "every_rows": 5000}
    return Markers(engine, outlet, None, **(values | chosen))


@contextmanager
def relay_on(database_url: str, outlet: Outlet, limits: RelayLimits = LIMITS, **chosen: Any) -> Iterator[Relay]:
    """A relay with an engine of its own, as a process of its own would have."""
    engine = make_engine(database_url, application_name="test-relay", pool_size=8, options=PLANNER_OPTIONS)
    try:
        yield Relay(engine, outlet, make_markers(engine, outlet), limits, **chosen)
    finally:
        engine.dispose()


def kafka_outlet(settings: Settings) -> KafkaOutlet:
    """A real outlet on the settings' cluster, with its topics made."""
    ensure_topics(settings)
    return KafkaOutlet(
        {priority: Publisher(settings) for priority in Priority}, lambda: ensure_topics(settings), "{0}:{1}".format
    )


def read_topic(bootstrap: str, topic: str) -> list[Any]:
    """Return all records that lie in `topic` now, without joining a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "enable.auto.commit": False})
    records: list[Any] = []
    try:
        found = consumer.list_topics(topic, timeout=10).topics[topic]
        for partition in found.partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                record = consumer.poll(10)
                assert record is not None, f"{topic}/{partition} gave nothing at {low} of {high}"
                assert record.error() is None, record.error()
                low = record.offset() + 1
                records.append(record)
    finally:
        consumer.close()
    return records


def in_list(client: "redis.Redis", queue: str) -> list[bytes]:
    """Return the tasks of a Celery list, the next one to be taken first."""
    found: list[bytes] = client.lrange(queue, 0, -1)  # type: ignore[assignment]
    return found[::-1]


@contextmanager
def in_thread(function: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run `function` beside the block; what it raises is raised at the end."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  handed to the test
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    yield thread
    thread.join(30)
    assert not thread.is_alive(), "the thread beside the test did not end"
    if raised:
        raise raised[0]
