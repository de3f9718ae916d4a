"""Reads a topic from outside any consumer loop: what waits in it, for an operator.

Progress is kept as the committed offsets of a group that never joins, so reading disturbs nobody.
"""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from app.kafka.client import client_settings
from app.kafka.topics import KafkaUnavailableError
from app.settings import Settings

_TIMEOUT_SECONDS = 5.0


class TopicReader:
    """A bounded look into one topic. Raises KafkaUnavailableError when the cluster does not answer."""

    def __init__(self, settings: Settings, topic: str, group: str) -> None:
        self._settings = settings
        self._topic = topic
        self._group = group

    def waiting(self) -> Iterator[Message]:
        """Yield what lies between the committed offsets and the end as it is now, oldest first by partition."""
        consumer = self._consumer()
        try:
            for partition in self._partitions(consumer):
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(self._topic, partition), timeout=_TIMEOUT_SECONDS
                )
                start = max(self._committed(consumer, partition), low)
                if start < high:
                    yield from self._read(consumer, partition, start, high)
        except KafkaException as error:
            raise KafkaUnavailableError(error.args[0].str()) from error
        finally:
            consumer.close()

    def done(self, offsets: dict[int, int]) -> None:
        """Commit the next offset of each partition: what lies before waits no longer."""
        consumer = self._consumer()
        try:
            consumer.commit(
                offsets=[TopicPartition(self._topic, *position) for position in offsets.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            raise KafkaUnavailableError(error.args[0].str()) from error
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(client_settings(self._settings, group_id=self._group, enable_auto_commit=False))

    def _partitions(self, consumer: Consumer) -> list[int]:
        found = consumer.list_topics(timeout=_TIMEOUT_SECONDS).topics.get(self._topic)
        return sorted(found.partitions) if found is not None else []

    def _committed(self, consumer: Consumer, partition: int) -> int:
        position = consumer.committed([TopicPartition(self._topic, partition)], timeout=_TIMEOUT_SECONDS)[0]
        return position.offset

    def _read(self, consumer: Consumer, partition: int, start: int, end: int) -> Iterator[Message]:
        consumer.assign([TopicPartition(self._topic, partition, start)])
        offset = start
        while offset < end:
            record = consumer.poll(_TIMEOUT_SECONDS)
            if record is None:
                raise KafkaUnavailableError(f"no record of {self._topic}/{partition} within {_TIMEOUT_SECONDS} s")
            if error := record.error():
                raise KafkaUnavailableError(error.str())
            offset = (record.offset() or 0) + 1
            yield record
