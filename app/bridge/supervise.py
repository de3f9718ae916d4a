"""Keeps one topic's loop running: topics first, then the loop, and a new one after whatever broke it."""

from collections.abc import Callable
from functools import partial
from threading import Event

from app.bridge.loop import BridgeLimits, TopicLoop
from app.kafka.consumer import ConsumerBrokenError, TopicConsumer
from app.kafka.topics import KafkaUnavailableError, ensure_topics
from app.observability import metrics
from app.observability.logging import get_logger
from app.queues import Lane
from app.settings import Settings
from app.wiring_pipeline import chunk_sizes, dead_letters, task_list

_log = get_logger(__name__)
_WAIT_SECONDS = 0.5
_WAIT_CAP_SECONDS = 10.0


def _unheard(_: str) -> None:
    """Nobody waits for the group."""


def keep_running(settings: Settings, lane: Lane, stop: Event, joined: Callable[[str], None] = _unheard) -> None:
    """Run the loop of `lane` until `stop` is set; tell `joined` the topic whenever partitions of it come."""
    wait = _WAIT_SECONDS
    while not stop.is_set():
        try:
            ensure_topics(settings)
            loop = topic_loop(settings, lane, stop, joined)
            wait = _WAIT_SECONDS
            loop.run()
        except (KafkaUnavailableError, ConsumerBrokenError) as error:
            metrics.BRIDGE_ERRORS.labels("kafka").inc()
            _log.warning("bridge_waits_for_kafka", topic=lane.topic, reason=str(error))
        except Exception:  # noqa: BLE001  only a signal ends the bridge; a new loop starts from what is committed
            metrics.BRIDGE_ERRORS.labels("unexpected").inc()
            _log.exception("bridge_loop_broke", topic=lane.topic)
        stop.wait(wait)
        wait = min(wait * 2, _WAIT_CAP_SECONDS)


def topic_loop(settings: Settings, lane: Lane, stop: Event, joined: Callable[[str], None] = _unheard) -> TopicLoop:
    """Return a new loop on the topic of `lane`; it joins the topic's group."""
    return TopicLoop(
        lane,
        partial(TopicConsumer, settings, lane.topic, lane.group),
        task_list(settings),
        dead_letters(settings),
        limits=BridgeLimits(
            batch=settings.bridge_batch,
            chunk=chunk_sizes(settings)[lane.priority],
            high_water=settings.bridge_high_water,
            poison_stop=settings.bridge_poison_stop,
        ),
        stop=stop,
        joined=joined,
    )
