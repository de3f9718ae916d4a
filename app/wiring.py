"""The composition root: settings in, built use cases out. Nothing else constructs engines, producers or services.

Everything is built on first use and once per process id, so that importing costs nothing and a forked child never
shares a socket or a library thread with its parent.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from threading import RLock
from typing import TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.db.outbox import PLANNER_OPTIONS
from app.db.session import make_engine
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Publisher
from app.services.markers import Markers
from app.services.nudge import Nudge
from app.services.outlets import DirectOutlet, KafkaOutlet, Outlet
from app.services.relay import Relay, RelayLimits
from app.services.rescue_queued import RescueQueued
from app.services.task_list import TaskList
from app.settings import Settings

Built = TypeVar("Built")
_LOCK = RLock()


def once_per_process(build: Callable[[Settings], Built]) -> Callable[[Settings], Built]:
    """Return `build` remembered per process id and settings; threads that race wait for the first."""
    built: dict[tuple[int, Settings], Built] = {}

    @wraps(build)
    def cached(settings: Settings) -> Built:
        key = (os.getpid(), settings)
        with _LOCK:
            if key not in built:
                built[key] = build(settings)
            return built[key]

    return cached


@dataclass(frozen=True)
class RelayServices:
    """What the relay worker runs."""

    relay: Relay
    rescue_queued: RescueQueued
    nudge: Nudge


@once_per_process
def nudge(settings: Settings) -> Nudge:
    """Return the nudge, on a connection that gives up quickly."""
    return Nudge(broker_client(settings, timeout_seconds=0.25))


@once_per_process
def outlet(settings: Settings) -> Outlet:
    """Return the way from the table to the workers that TRANSPORT names."""
    if settings.transport == "direct":
        return DirectOutlet(TaskList(broker_client(settings, timeout_seconds=5.0)), chunk_sizes(settings))
    return KafkaOutlet({priority: Publisher(settings) for priority in Priority})


@once_per_process
def relay_services(settings: Settings) -> RelayServices:
    """Return the use cases of the relay worker."""
    engine = make_engine(settings.database_url, application_name="arauto-relay", pool_size=8, options=PLANNER_OPTIONS)
    way = outlet(settings)
    markers = Markers(
        engine,
        way,
        broker_client(settings, timeout_seconds=0.5),
        interval_seconds=settings.marker_interval_seconds,
        every_rows=settings.marker_every_rows,
    )
    limits = RelayLimits(
        batch=settings.relay_batch,
        budget_seconds=settings.relay_budget_seconds,
        acknowledge_seconds=settings.relay_acknowledge_seconds,
        in_pipe={
            channel: int(settings.rate_per_second(channel) * settings.relay_pipe_seconds) for channel in Channel
        },
    )
    return RelayServices(
        relay=Relay(engine, way, markers, limits),
        rescue_queued=RescueQueued(
            engine, way, hold_seconds=settings.rescue_hold_seconds, limit=settings.rescue_limit
        ),
        nudge=nudge(settings),
    )


def chunk_sizes(settings: Settings) -> dict[Priority, int]:
    """Return how many ids of one channel may travel in one task, by priority."""
    return {
        Priority.HIGH: settings.bridge_chunk_high,
        Priority.NORMAL: settings.bridge_chunk_normal,
        Priority.LOW: settings.bridge_chunk_low,
    }


def broker_client(settings: Settings, *, timeout_seconds: float) -> "redis.Redis":
    """Return a client of the Redis that carries the Celery lists; it never retries by itself."""
    return redis.Redis.from_url(
        settings.celery_broker_url,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=min(timeout_seconds, 3.0),
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )
