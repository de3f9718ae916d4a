"""What every Kafka client of ours shares: where the cluster is, how soon a dead broker is noticed, who logs."""

import logging
from typing import Any

from app.settings import Settings

_LOGGER = logging.getLogger("librdkafka")


def client_settings(settings: Settings, **own: Any) -> dict[str, Any]:
    """Return librdkafka's configuration with `own` options laid over it (underscores stand for dots)."""
    shared: dict[str, Any] = {
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "client.id": "arauto",
        # A partition that was added, or a topic that was made again after a wipe, is seen within seconds.
        "topic.metadata.refresh.interval.ms": 10_000,
        "metadata.max.age.ms": 30_000,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 2_000,
        "socket.keepalive.enable": True,
        "socket.connection.setup.timeout.ms": 5_000,
        "log.connection.close": False,
        # A dead broker would be told many times a second; who calls says it once, with what it means.
        "log_level": 2,
        "logger": _LOGGER,
    }
    return {**shared, **{name.replace("_", "."): value for name, value in own.items()}}
