"""The composition root's room for the delivery worker: its lanes, limits, adapters and countdowns."""

import os
import socket
from typing import assert_never

from app.celery_app import celery
from app.db.deliveries import WRITE_OPTIONS
from app.db.ordering import READ_OPTIONS
from app.db.session import make_engine
from app.db.steady import SteadyConnections
from app.domain.kinds import Channel
from app.limits.breaker import Breaker, BreakerRules
from app.limits.client import make_redis
from app.limits.countdowns import CountdownSlots
from app.limits.crashes import CrashCounter
from app.limits.guard import Guard
from app.limits.rate import RateLimiter
from app.queues import TASK_RETRY
from app.services.advance import Advance
from app.services.deliver.check import Check
from app.services.deliver.countdowns import Countdown, Countdowns
from app.services.deliver.dead_addresses import DeadAddresses
from app.services.deliver.decide import Rules
from app.services.deliver.feedback import Feedback
from app.services.deliver.lane import LaneRules
from app.services.deliver.policies import PolicyBook
from app.services.deliver.recorder import Recorder
from app.services.deliver.render import Render
from app.services.deliver.turns import WakeNext
from app.services.deliver.worker import DeliveryWorker, WorkerLimits
from app.settings import Settings
from app.wiring import arrivals, library, nudge, once_per_process, unsubscribe_links, vault
from providers.base import Provider
from providers.registry import build


@once_per_process
def worker(settings: Settings) -> DeliveryWorker:
    """Return the delivery worker of this process, not started."""
    reads, writes = worker_connections(settings), worker_connections(settings, WRITE_OPTIONS)
    turns = worker_connections(settings, READ_OPTIONS)
    client = make_redis(settings.redis_url)
    limits = WorkerLimits(RateLimiter(client), breaker(settings), Guard(client), CrashCounter(client))
    owner = f"{socket.gethostname()}:{os.getpid()}"
    rules = Rules.of(settings)
    slots = CountdownSlots(client, settings.countdown_slots)
    countdowns = Countdowns(slots, settings.countdown_horizon_seconds, send_retry)
    dead_addresses = DeadAddresses(writes, vault(settings))
    policies = PolicyBook(reads, settings.policy_trusted_seconds)
    check = Check(
        policies,
        vault(settings),
        spread_seconds=settings.quiet_hours_spread_seconds,
        waiting_seconds=settings.rate_wait_seconds + settings.lease_seconds,
    )
    recorder = Recorder(
        database=writes,
        guard=limits.guard,
        owner=owner,
        rules=rules,
        countdowns=countdowns,
        grace_seconds=settings.countdown_grace_seconds,
        feedback=Feedback(limits.breaker, limits.rate, rules),
        dead_addresses=dead_addresses,
        arrivals=arrivals(settings),
        advance=_advance(settings).run_once,
        wake=WakeNext(turns, nudge(settings).nudge),
    )
    return DeliveryWorker(
        owner=owner,
        providers={channel: provider(settings, channel) for channel in Channel},
        rules={channel: lane_rules(settings, channel) for channel in Channel},
        reads=reads,
        writes=writes,
        turns=turns,
        limits=limits,
        renderer=Render(vault(settings), library(settings), unsubscribe_links(settings), policies),
        check=check,
        dead_addresses=dead_addresses,
        countdowns=countdowns,
        recorder=recorder,
        stop_seconds=settings.worker_stop_seconds,
    )


def _advance(settings: Settings) -> Advance:
    """Return the use case of the recorder's thread, on a connection of its own, opened by the first fallback."""
    engine = make_engine(settings.database_url, application_name="arauto-fallback", pool_size=1)
    return Advance(engine, settings.retry_attempts, nudge(settings).nudge)


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
        ordering_wait_seconds=settings.ordering_wait_seconds,
    )


def send_retry(countdown: Countdown) -> None:
    """Put a retry into its queue, to be run when its delay is over."""
    arguments = {"v": 1, "id": countdown.id, "channel": countdown.channel.value, "attempt": countdown.attempt}
    celery.send_task(
        TASK_RETRY, kwargs=arguments, queue=countdown.queue, countdown=countdown.delay_seconds, retry=False
    )
