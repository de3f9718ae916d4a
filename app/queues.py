"""Names of topics, queues and tasks, and which priority goes where. Every process reads them here."""

from dataclasses import dataclass

from app.domain.kinds import Priority


@dataclass(frozen=True, slots=True)
class Lane:
    """The way of one priority: its Kafka topic and its Celery queue, which is also its Redis list.

    `gather_seconds` is the least time between two pushes into the list. A Celery task costs its worker some
    milliseconds of one thread, whatever it carries, so under load ids must travel together.
    """

    priority: Priority
    topic: str
    partitions: int
    queue: str
    gather_seconds: float

    @property
    def group(self) -> str:
        """The bridge's consumer group on this topic: one a topic, so that a rebalance of LOW never stops HIGH."""
        return f"{BRIDGE_GROUP}.{self.queue}"


LANES: dict[Priority, Lane] = {
    Priority.HIGH: Lane(Priority.HIGH, "notifications.high", 12, "high", 0.01),
    Priority.NORMAL: Lane(Priority.NORMAL, "notifications.normal", 6, "normal", 0.05),
    Priority.LOW: Lane(Priority.LOW, "notifications.low", 2, "low", 0.1),
}
TOPIC_LANES: dict[str, Lane] = {lane.topic: lane for lane in LANES.values()}

DEAD_LETTER_TOPIC = "notifications.dlq"
BRIDGE_GROUP = "arauto-bridge"

RELAY_QUEUE = "relay"
"""Carries the ticks and nudges of the relay, and the upkeep of the tables."""

BATCH_QUEUE = "batch"
"""Carries the wake-ups of the expander. The LOW worker takes it too: it is the one that may step back."""

# Task names are explicit and carry a version, since messages outlive deploys.
TASK_DELIVER = "arauto.deliver.v1"
TASK_RETRY = "arauto.retry.v1"
TASK_MARK = "arauto.mark.v1"
TASK_RELAY = "arauto.relay.v1"
TASK_RESCUE = "arauto.rescue.v1"
TASK_PARTITIONS = "arauto.partitions.v1"
TASK_PRUNE = "arauto.prune.v1"
TASK_EXPAND = "arauto.expand.v1"
TASK_ERASE = "arauto.erase.v1"

DIRECT_TOPIC_PREFIX = "direct."
"""With TRANSPORT=direct a marker goes straight into the Celery list: topic `direct.<queue>`, partition 0."""
