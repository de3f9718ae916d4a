"""The composition root: settings in, built use cases out. Nothing else constructs engines, producers or services.

Everything is built on first use and once per process id, so that importing costs nothing and a forked child never
shares a socket or a library thread with its parent.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from threading import RLock
from typing import TypeVar, assert_never

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.celery_app import celery
from app.db import probe
from app.db.deliveries import WRITE_OPTIONS
from app.db.outbox import PLANNER_OPTIONS
from app.db.requests import RequestPool
from app.db.session import make_engine
from app.db.steady import SteadyConnections
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Publisher
from app.kafka.reader import TopicReader
from app.kafka.topics import ensure_topics
from app.limits.breaker import Breaker, BreakerRules
from app.limits.client import make_redis
from app.limits.countdowns import CountdownSlots
from app.limits.crashes import CrashCounter
from app.limits.guard import Guard
from app.limits.rate import RateLimiter
from app.queues import BRIDGE_GROUP, DEAD_LETTER_TOPIC, TASK_RETRY
from app.services.accept import Accept
from app.services.cancel import Cancel
from app.services.dead_letters import DeadLetters
from app.services.deliver.countdowns import Countdown, Countdowns
from app.services.deliver.decide import Rules
from app.services.deliver.feedback import Feedback
from app.services.deliver.lane import LaneRules
from app.services.deliver.recorder import Recorder
from app.services.deliver.render import render
from app.services.deliver.worker import DeliveryWorker, WorkerLimits
from app.services.expire import Expire
from app.services.health import HealthChecks, Part, reach
from app.services.markers import Markers
from app.services.nudge import Nudge
from app.services.outlets import DirectOutlet, KafkaOutlet, Outlet
from app.services.partitions import PartitionsAhead
from app.services.reading import ReadNotification
from app.services.receipt import TakeReceipt
from app.services.relay import Relay, RelayLimits
from app.services.rescue_queued import RescueQueued
from app.services.rescue_sending import RescueSending
from app.services.resolve import Resolve, resend_pairs
from app.services.retention import Retention
from app.services.task_list import TaskList
from app.settings import Settings
from providers.base import Provider
from providers.registry import build

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
class ApiServices:
    """What a request can ask for."""

    accept: Accept
    read: ReadNotification
    cancel: Cancel
    health: HealthChecks


@dataclass(frozen=True)
class RelayServices:
    """What the relay worker runs."""

    relay: Relay
    markers: Markers
    rescue_queued: RescueQueued
    nudge: Nudge


@dataclass(frozen=True)
class UpkeepServices:
    """What keeps the tables in shape."""

    partitions: PartitionsAhead
    retention: Retention


@dataclass(frozen=True)
class RecoveryServices:
    """The sweeps that upkeep runs, and receipts."""

    rescue_sending: RescueSending
    resolve: Resolve
    expire: Expire
    take_receipt: TakeReceipt


@once_per_process
def nudge(settings: Settings) -> Nudge:
    """Return the nudge, on a connection that gives up quickly."""
    return Nudge(broker_client(settings, timeout_seconds=0.25))


@once_per_process
def outlet(settings: Settings) -> Outlet:
    """Return the way from the table to the workers that TRANSPORT names."""
    if settings.transport == "direct":
        return DirectOutlet(task_list(settings), chunk_sizes(settings))
    return KafkaOutlet(
        {priority: Publisher(settings) for priority in Priority}, partial(ensure_topics, settings, 2.0)
    )


@once_per_process
def api_services(settings: Settings) -> ApiServices:
    """Return the use cases of the API, on a few watched connections of their own."""
    engine = make_engine(
        settings.database_url,
        application_name="arauto-api",
        pool_size=settings.api_database_pool,
        statement_timeout_seconds=settings.api_statement_timeout_seconds,
        pool_timeout_seconds=settings.api_pool_timeout_seconds,
        connect_timeout_seconds=2,
        autocommit=True,
        pre_ping=False,
    )
    # The watch comes after the server's own time-out, which leaves the connection usable.
    pool = RequestPool(engine, overdue_seconds=settings.api_statement_timeout_seconds + 2.0)
    return ApiServices(
        accept=Accept(
            pool,
            nudge(settings).nudge,
            attempts_allowed=settings.retry_attempts,
            schedule_max_days=settings.schedule_max_days,
        ),
        read=ReadNotification(pool, settings),
        cancel=Cancel(pool),
        health=health_checks(settings),
    )


@once_per_process
def health_checks(settings: Settings) -> HealthChecks:
    """Return what the health endpoints ask, on a connection of their own: requests may have taken all others."""
    engine = make_engine(
        settings.database_url,
        application_name="arauto-health",
        pool_size=1,
        statement_timeout_seconds=1.0,
        connect_timeout_seconds=2,
        autocommit=True,
        pre_ping=False,
    )
    pool = RequestPool(engine, overdue_seconds=2.0)
    cache = redis.Redis.from_url(
        settings.redis_url, socket_timeout=1.0, socket_connect_timeout=1.0, retry=Retry(NoBackoff(), 0)
    )
    queue: Callable[[], object] = broker_client(settings, timeout_seconds=1.0).ping
    if settings.transport == "kafka":
        queue = partial(reach, settings.kafka_bootstrap_servers, 1.0)
    return HealthChecks(
        Part("database", partial(pool.run, probe.ping)),
        {"redis": Part("redis", cache.ping), "message_queue": Part("message_queue", queue)},
        partial(pool.run, probe.is_migrated),
    )


@once_per_process
def relay_services(settings: Settings) -> RelayServices:
    """Return the use cases of the relay worker."""
    engine = make_engine(
        settings.database_url,
        application_name="arauto-relay",
        pool_size=8,
        pre_ping=False,
        options=PLANNER_OPTIONS,
    )
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
        markers=markers,
        rescue_queued=RescueQueued(
            engine, way, hold_seconds=settings.rescue_hold_seconds, limit=settings.rescue_limit
        ),
        nudge=nudge(settings),
    )


def chunk_sizes(settings: Settings) -> dict[Priority, int]:
    """Return how many ids of one channel may travel in one task, by priority."""
    sizes = (settings.bridge_chunk_high, settings.bridge_chunk_normal, settings.bridge_chunk_low)
    return dict(zip(Priority, sizes, strict=True))


@once_per_process
def dead_letters(settings: Settings) -> DeadLetters:
    """Return where the bridge sets poison aside, and from where an operator replays it."""
    return DeadLetters(Publisher(settings), TopicReader(settings, DEAD_LETTER_TOPIC, f"{BRIDGE_GROUP}.replay"))


@once_per_process
def task_list(settings: Settings) -> TaskList:
    """Return the Celery lists, for who hands deliveries over."""
    return TaskList(broker_client(settings, timeout_seconds=5.0))


def broker_client(settings: Settings, *, timeout_seconds: float) -> "redis.Redis":
    """Return a client of the Redis that carries the Celery lists; it never retries by itself."""
    return redis.Redis.from_url(
        settings.celery_broker_url,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=min(timeout_seconds, 3.0),
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )


@once_per_process
def upkeep_services(settings: Settings) -> UpkeepServices:
    """Return what keeps the tables in shape."""
    engine = make_engine(settings.database_url, application_name="arauto-upkeep", pool_size=2)
    return UpkeepServices(
        partitions=PartitionsAhead(engine, settings.partitions_ahead_days),
        retention=Retention(engine, settings.retention_days, settings.idempotency_retention_days),
    )


@once_per_process
def worker(settings: Settings) -> DeliveryWorker:
    """Return the delivery worker of this process, not started."""
    reads, writes = worker_connections(settings), worker_connections(settings, WRITE_OPTIONS)
    client = make_redis(settings.redis_url)
    limits = WorkerLimits(RateLimiter(client), breaker(settings), Guard(client), CrashCounter(client))
    owner = f"{socket.gethostname()}:{os.getpid()}"
    rules = Rules.of(settings)
    slots = CountdownSlots(client, settings.countdown_slots)
    countdowns = Countdowns(slots, settings.countdown_horizon_seconds, send_retry)
    recorder = Recorder(
        database=writes,
        guard=limits.guard,
        owner=owner,
        rules=rules,
        countdowns=countdowns,
        grace_seconds=settings.countdown_grace_seconds,
        feedback=Feedback(limits.breaker, limits.rate, rules),
    )
    return DeliveryWorker(
        owner=owner,
        providers={channel: provider(settings, channel) for channel in Channel},
        rules={channel: lane_rules(settings, channel) for channel in Channel},
        reads=reads,
        writes=writes,
        limits=limits,
        renderer=render,
        countdowns=countdowns,
        recorder=recorder,
        stop_seconds=settings.worker_stop_seconds,
    )


def worker_connections(settings: Settings, options: str = "") -> SteadyConnections:
    """Return the connections of a worker's threads, one a thread, none of them opened yet.

    The bound is above all threads that could ever ask: a worker of all three queues has twelve lanes of three
    threads, and its tasks defer what finds no room. A thread that got none would hold its lane up for ever.
    """
    engine = make_engine(
        settings.database_url,
        application_name="arauto-worker",
        pool_size=96,
        pool_timeout_seconds=10.0,
        autocommit=True,
        options=options,
    )
    return SteadyConnections(engine)


@once_per_process
def recovery_services(settings: Settings) -> RecoveryServices:
    """Return the sweeps over rows that no worker holds, and the use case that takes receipts."""
    engine = make_engine(settings.database_url, application_name="arauto-recovery", pool_size=4)
    return RecoveryServices(
        rescue_sending=RescueSending(
            engine,
            settings.unknown_window_high_seconds,
            settings.unknown_window_seconds,
            settings.lease_seconds,
        ),
        resolve=Resolve(engine, resend_pairs(settings)),
        expire=Expire(engine),
        take_receipt=TakeReceipt(engine),
    )


@once_per_process
def breaker(settings: Settings) -> Breaker:
    """Return the circuit breaker of all providers."""
    rules = BreakerRules(
        window_seconds=settings.breaker_window_seconds,
        minimum_calls=settings.breaker_minimum_calls,
        failure_ratio=settings.breaker_failure_ratio,
        refused_in_a_row=settings.breaker_refused_in_a_row,
        open_seconds=settings.breaker_open_seconds,
        open_cap_seconds=settings.breaker_open_cap_seconds,
        probe_seconds=settings.provider_timeout_seconds + 10.0,
    )
    return Breaker(make_redis(settings.redis_url), rules)


def provider(settings: Settings, channel: Channel) -> Provider:
    """Return the adapter of a channel; without a configured provider it talks to the sandbox."""
    timeout = settings.provider_timeout_seconds
    sandbox = settings.sandbox_url.rstrip("/")
    sms_token = settings.sms_provider_token.get_secret_value()
    push_token = settings.push_provider_token.get_secret_value()
    match channel:
        case Channel.EMAIL:
            url = settings.email_provider_url or settings.sandbox_smtp_url
            return build(channel.value, url, sender=settings.email_sender, timeout_seconds=timeout)
        case Channel.SMS:
            url = settings.sms_provider_url or f"{sandbox}/sms"
            return build(channel.value, url, token=sms_token, timeout_seconds=timeout)
        case Channel.PUSH:
            url = settings.push_provider_url or f"{sandbox}/push"
            return build(channel.value, url, token=push_token, timeout_seconds=timeout)
        case Channel.IN_APP:
            return build(channel.value, "")
        case _:
            assert_never(channel)


def lane_rules(settings: Settings, channel: Channel) -> LaneRules:
    """Return how a worker treats a channel. The fence leaves a third of the lease's margin unused."""
    return LaneRules(
        batch=settings.worker_batch,
        window=settings.worker_window,
        parked=settings.worker_parked,
        limit_per_second=settings.rate_per_second(channel),
        rate_wait_seconds=settings.rate_wait_seconds,
        lease_seconds=settings.lease_seconds,
        fence_margin_seconds=settings.lease_margin_seconds / 3,
        guard_seconds=settings.guard_seconds,
    )


def send_retry(countdown: Countdown) -> None:
    """Put a retry into its queue, to be run when its delay is over."""
    arguments = {"v": 1, "id": countdown.id, "channel": countdown.channel.value, "attempt": countdown.attempt}
    celery.send_task(
        TASK_RETRY, kwargs=arguments, queue=countdown.queue, countdown=countdown.delay_seconds, retry=False
    )
