"""How far the bridge is behind: the end of each partition less what its group has committed.

A consumer of the same group asks, without subscribing, so it takes no partition from anyone.
"""

from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from app.kafka.client import client_settings
from app.queues import BRIDGE_GROUP
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class TopicLag:
    """Records of one topic that the bridge has not passed yet, markers included."""

    partitions: int
    lag: int


def topic_lags(settings: Settings, topics: list[str], timeout_seconds: float = 5.0) -> dict[str, TopicLag]:
    """Return the lag of each of `topics` that exists; raise KafkaException when the cluster does not answer."""
    consumer = Consumer(client_settings(settings, group_id=BRIDGE_GROUP, enable_auto_commit=False))
    try:
        known = consumer.list_topics(timeout=timeout_seconds).topics
        return {
            topic: _lag(consumer, topic, sorted(known[topic].partitions), timeout_seconds)
            for topic in topics
            if topic in known
        }
    finally:
        consumer.close()


def _lag(consumer: Consumer, topic: str, partitions: list[int], timeout_seconds: float) -> TopicLag:
    positions = [TopicPartition(topic, partition) for partition in partitions]
    total = 0
    for position in consumer.committed(positions, timeout=timeout_seconds):
        if position.error is not None:
            raise KafkaException(position.error)
        low, high = consumer.get_watermark_offsets(position, timeout=timeout_seconds)
        total += max(high - max(position.offset, low), 0)
    return TopicLag(len(partitions), total)
