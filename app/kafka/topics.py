"""The topics: made before anyone subscribes, since a consumer that subscribes too early waits for its next look.

Making them is idempotent, and adding partitions later is safe: order between partitions means nothing here, and a
marker goes to every partition that the cluster names at that moment.
"""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from app.kafka.client import client_settings
from app.observability.logging import get_logger
from app.queues import DEAD_LETTER_TOPIC, LANES
from app.settings import Settings

_log = get_logger(__name__)
_DEAD_LETTER_DAYS = 30
_DAY_MILLISECONDS = 86_400_000


class KafkaUnavailableError(Exception):
    """The cluster cannot be reached, or would not make a topic; says why."""


def ensure_topics(settings: Settings, timeout_seconds: float = 10.0) -> list[str]:
    """Create the topics that do not exist yet and return their names; raise KafkaUnavailableError when that fails.

    librdkafka's mock cluster has no controller and makes a topic, with four partitions, when it is asked about it.
    """
    admin = AdminClient(client_settings(settings))
    try:
        return _create_missing(settings, admin, timeout_seconds)
    except (KafkaException, TimeoutError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
        raise KafkaUnavailableError(reason) from error


def _create_missing(settings: Settings, admin: AdminClient, timeout_seconds: float) -> list[str]:
    cluster = admin.list_topics(timeout=timeout_seconds)
    wanted = [_topic(settings, lane.topic, lane.partitions) for lane in LANES.values()]
    wanted.append(_topic(settings, DEAD_LETTER_TOPIC, 1, _DEAD_LETTER_DAYS * _DAY_MILLISECONDS))
    missing = [topic for topic in wanted if topic.topic not in cluster.topics]
    if cluster.controller_id not in cluster.brokers:
        for topic in missing:
            admin.list_topics(topic.topic, timeout=timeout_seconds)
        return [topic.topic for topic in missing]
    futures = admin.create_topics(missing, operation_timeout=timeout_seconds) if missing else {}
    made = []
    for name, future in futures.items():
        try:
            future.result(timeout=timeout_seconds + 5)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        else:
            made.append(name)
            _log.info("topic_created", topic=name)
    return made


def _topic(settings: Settings, name: str, partitions: int, retention_milliseconds: int | None = None) -> NewTopic:
    config = {"min.insync.replicas": str(settings.kafka_min_insync)}
    if retention_milliseconds:
        config["retention.ms"] = str(retention_milliseconds)
    return NewTopic(name, partitions, settings.kafka_replication, config=config)
