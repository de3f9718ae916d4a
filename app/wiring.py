"""The composition root: settings in, built use cases out. Nothing else constructs engines, producers or services.

It has a room for each kind of process: this one for what all share and for the API, `wiring_pipeline` for relay,
bridge and upkeep, `wiring_worker` for the delivery worker, `wiring_streams` for live inboxes, `wiring_operators`
for commands. So a process loads what it uses: the API neither a Kafka client nor Celery nor an adapter.

Everything is built on first use and once per process id, so that importing costs nothing and a forked child never
shares a socket or a library thread with its parent.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from threading import RLock
from typing import TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.cache.cache import Cache
from app.cache.courier import Courier
from app.cache.era import Era
from app.db import api_keys, audit, probe
from app.db.requests import RequestPool
from app.db.session import make_engine
from app.domain.encryption_keys import parse_key, parse_keys
from app.domain.kinds import Channel
from app.domain.request_kinds import RequestKind
from app.limits.circuit import Circuit
from app.limits.requests import RequestWindows
from app.rendering.library import Library
from app.sealing import Vault
from app.services.accept.accept import Accept
from app.services.arrivals import Arrivals
from app.services.audit_log import ReadAudit
from app.services.batches.accept import AcceptBatch
from app.services.batches.manage import ManageBatches
from app.services.batches.reports import BatchReports
from app.services.batches.upload import Upload
from app.services.cancel import Cancel
from app.services.client_address import ClientAddress, parse_networks
from app.services.cursors import Cursors
from app.services.erase import RequestErasure
from app.services.explain import Explain
from app.services.frequency_caps import FrequencyCaps
from app.services.health import HealthChecks, Part, reach
from app.services.inbox import Inbox
from app.services.inbox_events import InboxEvents
from app.services.issuer_keys import IssuerKeys
from app.services.last_use import LastUses
from app.services.limit_requests import LimitRequests, Quotas
from app.services.listing import Lists
from app.services.manage_devices import ManageDevices
from app.services.manage_keys import ManageKeys
from app.services.manage_users import ManageUsers
from app.services.nudge import Nudge
from app.services.policies import ManagePolicies
from app.services.preferences import Preferences
from app.services.reading import ReadNotification
from app.services.sign_in import SignIn
from app.services.sign_in_failures import SignInFailures
from app.services.statistics import Statistics
from app.services.stream_tickets import StreamTickets
from app.services.suppressions import Suppressions
from app.services.templates.manage import ManageTemplates
from app.services.templates.preview import PreviewTemplate
from app.services.unsubscribe import Unsubscribe, UnsubscribeLinks
from app.services.verify_key import VerifyKey
from app.services.verify_token import VerifyToken
from app.settings import Settings, parse_limits

Built = TypeVar("Built")
_LOCK = RLock()

CACHE_SECONDS = 0.1
"""How long a request waits for the cache, once; then the cache is left alone for a while."""


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
class BatchServices:
    """What a request can do with batches."""

    accept: AcceptBatch
    upload: Upload
    manage: ManageBatches
    reports: BatchReports


@dataclass(frozen=True)
class ApiServices:
    """What a request can ask for."""

    sign_in: SignIn
    sign_in_failures: SignInFailures
    client_address: ClientAddress
    limits: LimitRequests
    audit: ReadAudit
    tickets: StreamTickets
    keys: ManageKeys
    caps: FrequencyCaps
    accept: Accept
    read: ReadNotification
    lists: Lists
    inbox: Inbox
    statistics: Statistics
    cancel: Cancel
    users: ManageUsers
    devices: ManageDevices
    erasures: RequestErasure
    templates: ManageTemplates
    preview: PreviewTemplate
    health: HealthChecks
    batches: BatchServices
    explain: Explain
    policies: ManagePolicies
    preferences: Preferences
    suppressions: Suppressions
    unsubscribe: Unsubscribe


@once_per_process
def nudge(settings: Settings) -> Nudge:
    """Return the nudge, on a connection that gives up quickly."""
    return Nudge(broker_client(settings, timeout_seconds=0.25))


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
    read = ReadNotification(pool, vault(settings), settings)
    manage_templates = ManageTemplates(pool, cursors(settings))
    accept = Accept(
        pool,
        vault(settings),
        nudge(settings).nudge,
        arrivals(settings),
        library=library(settings),
        attempts_allowed=settings.retry_attempts,
        schedule_max_days=settings.schedule_max_days,
        spread_seconds=settings.quiet_hours_spread_seconds,
    )
    return ApiServices(
        sign_in=sign_in(settings, pool, verify_key(settings, pool)),
        tickets=stream_tickets(settings),
        sign_in_failures=SignInFailures(
            lambda entries: pool.once(lambda cursor: audit.add_behind(cursor, entries))
        ),
        client_address=ClientAddress(parse_networks(settings.trusted_proxies)),
        limits=_limits(settings),
        audit=ReadAudit(pool, cursors(settings)),
        keys=ManageKeys(pool, cursors(settings)),
        caps=FrequencyCaps(pool),
        accept=accept,
        read=read,
        lists=Lists(pool, vault(settings), cursors(settings), read),
        inbox=Inbox(pool, cache(settings).cache, InboxEvents(cache(settings).courier)),
        statistics=Statistics(pool),
        cancel=Cancel(pool),
        users=ManageUsers(pool, vault(settings), cursors(settings)),
        devices=ManageDevices(pool, vault(settings), settings.devices_per_user),
        erasures=RequestErasure(pool),
        templates=manage_templates,
        preview=PreviewTemplate(manage_templates, library(settings)),
        health=health_checks(settings),
        batches=_batches(settings, pool, accept),
        explain=Explain(accept, {channel: settings.provider_name(channel) for channel in Channel}),
        policies=ManagePolicies(pool, cursors(settings)),
        preferences=Preferences(pool),
        suppressions=Suppressions(pool, vault(settings), cursors(settings)),
        unsubscribe=Unsubscribe(pool, unsubscribe_links(settings)),
    )


def _batches(settings: Settings, pool: RequestPool, accept: Accept) -> BatchServices:
    wake = nudge(settings).expand
    return BatchServices(
        accept=AcceptBatch(pool, vault(settings), accept.shared, wake, settings.batch_open_limit),
        upload=Upload(pool, vault(settings), wake, settings.batch_upload_max_bytes),
        manage=ManageBatches(pool, cursors(settings), wake),
        reports=BatchReports(pool, cursors(settings)),
    )


def verify_key(settings: Settings, pool: RequestPool) -> VerifyKey:
    """Return what proves API keys."""
    return VerifyKey(pool, trusted_seconds=settings.api_key_trusted_seconds)


def sign_in(settings: Settings, pool: RequestPool, keys: VerifyKey) -> SignIn:
    """Return what proves callers, by token or by API key."""
    uses = LastUses(
        lambda ages: pool.once(lambda cursor: api_keys.touch(cursor, ages)),
        interval_seconds=settings.api_key_last_use_seconds,
    )
    return SignIn(
        VerifyToken(settings, None if settings.signs_tokens else _issuer_keys(settings).find),
        keys,
        uses.note,
    )


def _limits(settings: Settings) -> LimitRequests:
    """Return the limits of requests, on connections that give up before a request would notice."""
    client = redis.Redis.from_url(
        settings.redis_url,
        socket_timeout=settings.limit_timeout_seconds,
        socket_connect_timeout=settings.limit_timeout_seconds,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )
    quotas = Quotas(
        users={
            RequestKind.READ: settings.limit_user_reads,
            RequestKind.WRITE: settings.limit_user_writes,
            RequestKind.READ_MARK: settings.limit_user_read_marks,
            RequestKind.DELETE: settings.limit_user_deletes,
        },
        service=settings.limit_service,
        tenants=parse_limits(settings.limit_tenants),
        sign_in_failures=settings.limit_sign_in_failures,
    )
    return LimitRequests(RequestWindows(client), Circuit("limits", client.ping), quotas)


def _issuer_keys(settings: Settings) -> IssuerKeys:
    from app.services.fetch_keys import FetchKeys  # noqa: PLC0415  loads an HTTP client, for who has an issuer

    return IssuerKeys(
        FetchKeys(settings.jwt_jwks_url, settings.jwt_jwks_timeout_seconds),
        settings.jwt_algorithm,
        fresh_seconds=settings.jwt_jwks_fresh_seconds,
        pause_seconds=settings.jwt_jwks_pause_seconds,
        timeout_seconds=settings.jwt_jwks_timeout_seconds,
        # Half of the threads stay free for callers whose keys are known while an issuer hangs.
        waiting_limit=max(settings.api_threads // 2, 1),
    )


@once_per_process
def unsubscribe_links(settings: Settings) -> UnsubscribeLinks:
    """Return what makes and reads unsubscribe links: the worker makes them, the API reads them."""
    return UnsubscribeLinks(settings.link_base_url, settings.link_secrets)


@once_per_process
def library(_settings: Settings) -> Library:
    """Return the process's memory of template versions and of what was compiled of them."""
    return Library()


def cursors(settings: Settings) -> Cursors:
    """Return what makes the cursors of lists; every process makes and reads the same ones."""
    return Cursors(settings.jwt_secret.get_secret_value())


def stream_tickets(settings: Settings) -> StreamTickets:
    """Return what makes and reads the tickets of streams; every process makes and reads the same ones."""
    return StreamTickets(settings.jwt_secret.get_secret_value())


@once_per_process
def vault(settings: Settings) -> Vault:
    """Return what seals and opens what is personal."""
    keys, sealing_key = parse_keys(settings.encryption_keys.get_secret_value())
    return Vault(keys, sealing_key, parse_key(settings.blind_index_key.get_secret_value()))


@dataclass(frozen=True)
class CacheParts:
    """The cache, and what sends its commands and all news that nobody waits for."""

    cache: Cache
    courier: Courier


@once_per_process
def cache(settings: Settings) -> CacheParts:
    """Return the cache of this process, on connections that give up quickly."""
    era = Era()
    client = redis.Redis.from_url(
        settings.cache_redis_url,
        socket_timeout=CACHE_SECONDS,
        socket_connect_timeout=CACHE_SECONDS,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
        redis_connect_func=era.connected,
    )
    courier = Courier(client)
    return CacheParts(Cache(client, courier, era), courier)


def arrivals(settings: Settings) -> Arrivals:
    """Return what stands around the transactions in which something comes into an inbox."""
    parts = cache(settings)
    return Arrivals(parts.cache, InboxEvents(parts.courier))


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


def broker_client(settings: Settings, *, timeout_seconds: float) -> "redis.Redis":
    """Return a client of the Redis that carries the Celery lists; it never retries by itself."""
    return redis.Redis.from_url(
        settings.celery_broker_url,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=min(timeout_seconds, 3.0),
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )
