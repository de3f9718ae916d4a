"""The composition root: settings in, built use cases out. Nothing else constructs engines, producers or services.

It has a room for each kind of process: this one for what all share and for the API, `wiring_pipeline` for relay,
bridge and upkeep, `wiring_worker` for the delivery worker, `wiring_operators` for commands. So a process loads
what it uses: the API neither a Kafka client nor Celery nor an adapter.

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

from app.db import api_keys, probe
from app.db.requests import RequestPool
from app.db.session import make_engine
from app.domain.encryption_keys import parse_key, parse_keys
from app.sealing import Vault
from app.services.accept.accept import Accept
from app.services.cancel import Cancel
from app.services.cursors import Cursors
from app.services.frequency_caps import FrequencyCaps
from app.services.health import HealthChecks, Part, reach
from app.services.issuer_keys import IssuerKeys
from app.services.last_use import LastUses
from app.services.manage_keys import ManageKeys
from app.services.nudge import Nudge
from app.services.reading import ReadNotification
from app.services.sign_in import SignIn
from app.services.verify_key import VerifyKey
from app.services.verify_token import VerifyToken
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
class ApiServices:
    """What a request can ask for."""

    sign_in: SignIn
    keys: ManageKeys
    caps: FrequencyCaps
    accept: Accept
    read: ReadNotification
    cancel: Cancel
    health: HealthChecks


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
    return ApiServices(
        sign_in=_sign_in(settings, pool),
        keys=ManageKeys(pool, cursors(settings)),
        caps=FrequencyCaps(pool),
        accept=Accept(
            pool,
            vault(settings),
            nudge(settings).nudge,
            attempts_allowed=settings.retry_attempts,
            schedule_max_days=settings.schedule_max_days,
        ),
        read=ReadNotification(pool, vault(settings), settings),
        cancel=Cancel(pool),
        health=health_checks(settings),
    )


def _sign_in(settings: Settings, pool: RequestPool) -> SignIn:
    uses = LastUses(
        lambda ages: pool.once(lambda cursor: api_keys.touch(cursor, ages)),
        interval_seconds=settings.api_key_last_use_seconds,
    )
    return SignIn(
        VerifyToken(settings, None if settings.signs_tokens else _issuer_keys(settings).find),
        VerifyKey(pool, trusted_seconds=settings.api_key_trusted_seconds),
        uses.note,
    )


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


def cursors(settings: Settings) -> Cursors:
    """Return what makes the cursors of lists; every process makes and reads the same ones."""
    return Cursors(settings.jwt_secret.get_secret_value())


@once_per_process
def vault(settings: Settings) -> Vault:
    """Return what seals and opens what is personal."""
    keys, sealing_key = parse_keys(settings.encryption_keys.get_secret_value())
    return Vault(keys, sealing_key, parse_key(settings.blind_index_key.get_secret_value()))


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
