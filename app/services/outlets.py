"""Where the relay publishes to: Kafka, or with TRANSPORT=direct straight into the Celery lists.

Both give one verdict a row, and carry a marker behind all that they acknowledged before.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import redis

from app.db.outbox import Due
from app.domain.envelope import DeliveryDue, Marker, now
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Publisher, Record, Refusal
from app.kafka.topics import KafkaUnavailableError
from app.observability.logging import get_logger
from app.queues import DIRECT_TOPIC_PREFIX, LANES
from app.services.task_list import TaskList, deliver_task, mark_task

_log = get_logger(__name__)


class Outlet(Protocol):
    """One way from the table to the workers, for all priorities."""

    def publish(
        self, priority: Priority, channel: Channel, rows: Sequence[Due], within_seconds: float
    ) -> list[Refusal | None]:
        """Publish `rows`; return None for each row that was acknowledged, else why not."""

    def mark(self, priority: Priority, seq: int, partitions: int, within_seconds: float) -> bool:
        """Send a marker down every partition; tell whether all of them were acknowledged."""

    def partitions(self, priority: Priority) -> int | None:
        """Return how many partitions there are now, or None when that cannot be known at the moment."""

    def topic(self, priority: Priority) -> str:
        """Return the name under which markers of this priority are written down."""


class KafkaOutlet:
    """Publishes envelopes to the topic of their priority; each priority has a producer of its own."""

    def __init__(
        self,
        publishers: Mapping[Priority, Publisher],
        make_topics: Callable[[], object],
        user_key: Callable[[str, str], str],
    ) -> None:
        """`make_topics` creates what is missing, after a start or a wipe; it raises KafkaUnavailableError.

        `user_key` makes the key of a tenant's user: a digest, since a product may use addresses as ids.
        """
        self._user_key = user_key
        self._publishers = publishers
        self._make_topics = make_topics

    def publish(
        self, priority: Priority, channel: Channel, rows: Sequence[Due], within_seconds: float
    ) -> list[Refusal | None]:
        """Produce one envelope a row, keyed by the delivery, or by its user where an order is kept."""
        topic, timestamp, batch = LANES[priority].topic, now(), secrets.token_hex(8)
        records = [
            Record(
                topic,
                DeliveryDue(
                    f"{batch}-{number}",
                    row.id,
                    row.notification_id,
                    channel,
                    priority,
                    row.tenant_id,
                    row.rescues,
                ).encode(timestamp),
                row.id if row.ordered_user is None else self._user_key(row.tenant_id, row.ordered_user),
            )
            for number, row in enumerate(rows)
        ]
        return self._publishers[priority].publish(records, within_seconds)

    def mark(self, priority: Priority, seq: int, partitions: int, within_seconds: float) -> bool:
        """Produce the marker to every partition, behind what this producer sent before."""
        topic = LANES[priority].topic
        records = [
            Record(topic, Marker(topic, partition, seq).encode(), partition=partition)
            for partition in range(partitions)
        ]
        return not any(self._publishers[priority].publish(records, within_seconds))

    def partitions(self, priority: Priority) -> int | None:
        """Ask the cluster; a topic that is missing is made."""
        topic = LANES[priority].topic
        count = self._publishers[priority].partitions(topic)
        if count is not None:
            return count
        try:
            self._make_topics()
        except KafkaUnavailableError as error:
            _log.info("topics_not_made", topic=topic, reason=str(error))
            return None
        return self._publishers[priority].partitions(topic)

    def topic(self, priority: Priority) -> str:
        """Return the topic of the priority."""
        return LANES[priority].topic


class DirectOutlet:
    """Puts the tasks into the Celery lists itself. A push is one command, so its rows share one verdict."""

    def __init__(self, tasks: TaskList, chunks: Mapping[Priority, int]) -> None:
        self._tasks = tasks
        self._chunks = chunks

    def publish(
        self, priority: Priority, channel: Channel, rows: Sequence[Due], within_seconds: float
    ) -> list[Refusal | None]:
        """Push chunks of one channel; what was lost before travels alone."""
        del within_seconds  # the client's socket time-out is the limit
        queue, size = LANES[priority].queue, self._chunks[priority]
        plain = [row.id for row in rows if not row.rescues]
        tasks = [deliver_task(queue, channel, plain[at : at + size]) for at in range(0, len(plain), size)]
        tasks += [deliver_task(queue, channel, [row.id], is_suspect=True) for row in rows if row.rescues]
        return [self._push(queue, tasks)] * len(rows)

    def mark(self, priority: Priority, seq: int, partitions: int, within_seconds: float) -> bool:
        """Push the marker behind what was pushed before."""
        del within_seconds
        queue = LANES[priority].queue
        marks = [mark_task(queue, self.topic(priority), partition, seq) for partition in range(partitions)]
        return self._push(queue, marks) is None

    def partitions(self, priority: Priority) -> int | None:
        """Return 1: a list has no partitions."""
        del priority
        return 1

    def topic(self, priority: Priority) -> str:
        """Return the name that stands for the list of the priority."""
        return DIRECT_TOPIC_PREFIX + LANES[priority].queue

    def _push(self, queue: str, tasks: Sequence[bytes]) -> Refusal | None:
        try:
            self._tasks.push(queue, tasks)
        except redis.RedisError as error:
            return Refusal(f"celery: {type(error).__name__}", about_record=False)
        return None
