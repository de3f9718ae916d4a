"""What the cluster says of our topics: how far the bridge is behind, and whether they are as the settings want.

The lag is the end of each partition less what the topic's bridge group has committed. A consumer of that group
asks for it without subscribing, so it takes no partition from anyone.
"""

from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from app.kafka.client import client_settings
from app.kafka.topics import KafkaUnavailableError
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class TopicLag:
    """Records of one topic that the bridge has not passed yet, markers included."""

    partitions: int
    lag: int


def topic_lag(settings: Settings, topic: str, group: str, timeout_seconds: float = 5.0) -> TopicLag | None:
    """Return how far `group` is behind on `topic`, or None where it does not exist.

    Raises KafkaUnavailableError when the cluster does not answer.
    """
    consumer = Consumer(client_settings(settings, group_id=group, enable_auto_commit=False))
    try:
        known = consumer.list_topics(timeout=timeout_seconds).topics
        return _lag(consumer, topic, sorted(known[topic].partitions), timeout_seconds) if topic in known else None
    except KafkaException as error:
        raise KafkaUnavailableError(error.args[0].str()) from error
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


@dataclass(frozen=True, slots=True)
class TopicShape:
    """`replicas` is the least over the partitions; `min_insync` is None where the cluster does not tell."""

    partitions: int
    replicas: int
    min_insync: int | None


def topic_shapes(settings: Settings, topics: list[str], timeout_seconds: float = 5.0) -> dict[str, TopicShape]:
    """Return how those of `topics` that exist are made; raise KafkaUnavailableError without an answer."""
    admin = AdminClient(client_settings(settings))
    try:
        known = admin.list_topics(timeout=timeout_seconds).topics
    except KafkaException as error:
        raise KafkaUnavailableError(error.args[0].str()) from error
    present = {topic: known[topic] for topic in topics if topic in known}
    insync = _min_insync(admin, list(present), timeout_seconds)
    return {
        topic: TopicShape(
            len(metadata.partitions),
            min((len(partition.replicas) for partition in metadata.partitions.values()), default=0),
            insync.get(topic),
        )
        for topic, metadata in present.items()
    }


def _min_insync(admin: AdminClient, topics: list[str], timeout_seconds: float) -> dict[str, int]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    found = {}
    for resource, future in admin.describe_configs(resources, request_timeout=timeout_seconds).items():
        try:
            entry = future.result(timeout=timeout_seconds + 1).get("min.insync.replicas")
        except KafkaException:  # the light broker has no configurations
            continue
        if entry is not None:
            found[resource.name] = int(entry.value)
    return found
