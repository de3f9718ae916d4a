"""The consumer of the bridge: manual offsets, bounded waits, and errors that never end the loop.

Invariants: an offset is committed only by `commit`, after what it stands for was handed on; a revoked partition is
never committed; a poll that only returned errors, or a commit with nothing to commit, is no fault.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.kafka.client import client_settings
from app.observability.logging import get_logger
from app.settings import Settings

__all__ = ["ConsumerBrokenError", "Message", "Rebalance", "TopicConsumer"]

_log = get_logger(__name__)

_TOPIC_IS_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001  librdkafka's own codes
)


class ConsumerBrokenError(Exception):
    """The consumer cannot go on; a new one may, once the topics are there (again)."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """What to do with partitions (their numbers) that come and go.

    `on_revoke` may still hand on and commit; `on_lost` may only forget: another member may have them already.
    """

    on_assign: Callable[[Iterable[int]], None]
    on_revoke: Callable[[Iterable[int]], None]
    on_lost: Callable[[Iterable[int]], None]


class TopicConsumer:
    """One member of the consumer group `group`, on one topic. Used by one thread."""

    def __init__(self, settings: Settings, topic: str, group: str, rebalance: Rebalance) -> None:
        self._topic = topic
        self._rebalance = rebalance
        self._assigned: set[int] = set()
        self._is_paused = False
        self._consumer = Consumer(
            client_settings(
                settings,
                group_id=group,
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="earliest",
                partition_assignment_strategy="cooperative-sticky",
                session_timeout_ms=10_000,
                heartbeat_interval_ms=2_000,
                max_poll_interval_ms=120_000,
                socket_timeout_ms=5_000,
                fetch_wait_max_ms=int(settings.kafka_fetch_wait_seconds * 1000),
                fetch_error_backoff_ms=200,
                queued_max_messages_kbytes=4_096,
                queued_min_messages=2_000,
                enable_partition_eof=False,
                allow_auto_create_topics=True,
            )
        )
        self._consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)

    @property
    def assigned(self) -> frozenset[int]:
        """The partitions that are ours now."""
        return frozenset(self._assigned)

    def poll(self, most: int, wait_seconds: float, gather_seconds: float = 0.0) -> list[Message]:
        """Wait for a record, then return up to `most` of what comes within `gather_seconds`; serves rebalances.

        Raises ConsumerBrokenError when the topic is gone or the client met a fatal error; other errors heal.
        """
        first = self._consumer.poll(wait_seconds)
        if first is None:
            return []
        rest = self._consumer.consume(most - 1, gather_seconds) if most > 1 else []
        return [record for record in (first, *rest) if self._is_good(record)]

    def _is_good(self, record: Message) -> bool:
        error = record.error()
        if error is None:
            return True
        if error.fatal() or error.code() in _TOPIC_IS_MISSING:
            raise ConsumerBrokenError(error.name())
        _log.info("consumer_error", topic=self._topic, reason=error.name())
        return False

    def commit(self, offsets: Mapping[int, int], *, wait: bool = False) -> None:
        """Commit the next offset of each partition that is still ours. A failure costs repetitions, no loss."""
        positions = [
            TopicPartition(self._topic, partition, offset)
            for partition, offset in offsets.items()
            if partition in self._assigned
        ]
        if not positions:
            return
        try:
            if wait:
                self._consumer.commit(offsets=positions, asynchronous=False)
            else:
                self._consumer.commit(offsets=positions)
        except KafkaException as error:
            _log.info("commit_failed", topic=self._topic, reason=error.args[0].name())

    def pause(self) -> None:
        """Stop fetching, also what will be assigned later; `poll` goes on keeping the membership."""
        self._is_paused = True
        self._consumer.pause([TopicPartition(self._topic, partition) for partition in self._assigned])

    def resume(self) -> None:
        """Fetch again."""
        self._is_paused = False
        self._consumer.resume([TopicPartition(self._topic, partition) for partition in self._assigned])

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._consumer.close()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        come = {partition.partition for partition in partitions}
        self._assigned |= come
        self._rebalance.on_assign(come)
        consumer.incremental_assign(partitions)
        if self._is_paused:
            consumer.pause(partitions)
        _log.info("partitions_assigned", topic=self._topic, partitions=sorted(self._assigned))

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [partition.partition for partition in partitions]
        self._rebalance.on_revoke(gone)
        self._assigned -= set(gone)
        consumer.incremental_unassign(partitions)

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [partition.partition for partition in partitions]
        self._assigned -= set(gone)
        self._rebalance.on_lost(gone)
        consumer.incremental_unassign(partitions)
