"""The composition root's room for what only an operator's command builds; no process loads it in vain."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery import Celery
from redis import RedisError

from app.celery_app import make_celery
from app.db import audit
from app.db.requests import RequestPool
from app.db.session import make_engine
from app.domain.audit import Entry
from app.domain.kinds import Channel
from app.kafka.survey import topic_lag, topic_shapes
from app.limits.client import check_broker, check_limits, make_redis
from app.limits.crashes import CrashCounter
from app.observability.logging import get_logger
from app.queues import DEAD_LETTER_TOPIC, LANES, TASK_RELAY
from app.services import doctor_pipeline as pipeline
from app.services.audit_log import ReadAudit
from app.services.dead_letters import DeadLetters
from app.services.doctor import DatabaseProbe, Probe
from app.services.ledger import Ledger
from app.services.manage_keys import ManageKeys
from app.services.migrate import Migrate
from app.services.partitions import PartitionsAhead
from app.services.replay import Replay
from app.services.reseal import Reseal
from app.services.status import Status
from app.services.task_list import TaskList
from app.settings import Settings
from app.wiring import broker_client, cursors, nudge, once_per_process, vault
from app.wiring_pipeline import dead_letters
from app.wiring_worker import breaker

_REPORT_TIMEOUT_SECONDS = 600.0
_KEY_TIMEOUT_SECONDS = 10.0
_INSPECT_SECONDS = 2.0
_log = get_logger(__name__)


@dataclass(frozen=True)
class OperatorServices:
    """What the commands of `arauto` use."""

    status: Status
    ledger: Ledger
    replay: Replay
    migrate: Migrate
    dead_letters: DeadLetters
    keys: ManageKeys
    reseal: Reseal
    audit: ReadAudit
    note: Callable[[Entry], None]
    probes: list[Probe]


@once_per_process
def operator_services(settings: Settings) -> OperatorServices:
    """Return the use cases of an operator; none of them connects before it is used."""
    engine = make_engine(
        settings.database_url,
        application_name="arauto-operator",
        pool_size=2,
        statement_timeout_seconds=_REPORT_TIMEOUT_SECONDS,
    )
    limits = make_redis(settings.redis_url)
    requests = _requests(settings)
    status = Status(
        engine=engine,
        kafka_lags=partial(_lags, settings),
        list_length=TaskList(broker_client(settings, timeout_seconds=2.0)).length,
        breakers=breaker(settings).snapshot,
        hold_seconds=settings.rescue_hold_seconds,
        wait=time.sleep,
    )
    return OperatorServices(
        status=status,
        ledger=Ledger(engine),
        replay=Replay(
            engine,
            settings.retry_attempts,
            forget_crashes=partial(_forget_crashes, CrashCounter(limits)),
            nudge=nudge(settings).nudge,
        ),
        migrate=Migrate(settings.sqlalchemy_url, engine, PartitionsAhead(engine, settings.partitions_ahead_days)),
        dead_letters=dead_letters(settings),
        keys=ManageKeys(requests, cursors(settings)),
        audit=ReadAudit(requests, cursors(settings)),
        note=partial(_note, requests),
        reseal=Reseal(engine, vault(settings)),
        probes=_probes(settings, engine_probe=_database(settings, engine), status=status),
    )


def _requests(settings: Settings) -> RequestPool:
    """Return a connection like those of the API, for use cases that it has too."""
    engine = make_engine(
        settings.database_url,
        application_name="arauto-operator",
        pool_size=1,
        statement_timeout_seconds=_KEY_TIMEOUT_SECONDS,
        autocommit=True,
        pre_ping=False,
    )
    return RequestPool(engine, overdue_seconds=_KEY_TIMEOUT_SECONDS + 2.0)


def _note(requests: RequestPool, entry: Entry) -> None:
    requests.run(lambda cursor: audit.add_behind(cursor, [entry]))


def _lags(settings: Settings) -> dict[str, int]:
    if settings.transport == "direct":
        return {}
    found = {lane.topic: topic_lag(settings, lane.topic, lane.group) for lane in LANES.values()}
    return {topic: lag.lag for topic, lag in found.items() if lag is not None}


def _forget_crashes(crashes: CrashCounter, ids: Sequence[str]) -> None:
    try:
        crashes.finished(ids)
    except RedisError as error:  # the count only matters to ids that took workers down, and it expires
        _log.warning("crash_counts_kept", ids=len(ids), reason=type(error).__name__)


def _database(settings: Settings, engine: Any) -> DatabaseProbe:
    return DatabaseProbe(engine, settings.sqlalchemy_url, settings.retention_days, settings.partitions_ahead_days)


def _probes(settings: Settings, *, engine_probe: DatabaseProbe, status: Status) -> list[Probe]:
    database = Probe("postgresql", engine_probe.look, "start PostgreSQL, or correct DATABASE_URL")
    redis = pipeline.RedisProbe(
        partial(check_broker, settings.celery_broker_url), partial(check_limits, settings.redis_url)
    )
    kafka = pipeline.KafkaProbe(partial(_shapes, settings), settings.kafka_replication, settings.kafka_min_insync)
    application = make_celery(settings.celery_broker_url, socket_timeout=_INSPECT_SECONDS + 1.0)
    workers = pipeline.WorkersProbe(
        partial(_queues, application),
        partial(_relay_runs, application),
        settings.relay_tick_seconds,
        time.sleep,
    )
    providers = pipeline.ProvidersProbe(provider_urls(settings), settings.environment == "production")
    flow = pipeline.FlowProbe(partial(_flow, status))
    kafka_then = "start Kafka, correct KAFKA_BOOTSTRAP_SERVERS, or do without it: TRANSPORT=direct"
    return [
        database,
        Probe("redis", redis.look, "start Redis or Valkey, or correct REDIS_URL and BROKER_URL"),
        *([Probe("kafka", kafka.look, kafka_then)] if settings.transport == "kafka" else []),
        Probe("workers", workers.look, "the broker must answer before workers can be asked"),
        Probe("providers", providers.look, "correct the provider addresses"),
        Probe("flow", flow.look, "the database must answer before rows can be looked at"),
    ]


def provider_urls(settings: Settings) -> dict[str, tuple[str, bool]]:
    """Return, by channel, the address that deliveries go to and whether it is the sandbox."""
    chosen = {
        Channel.EMAIL: (settings.email_provider_url, settings.sandbox_smtp_url),
        Channel.SMS: (settings.sms_provider_url, settings.sandbox_url),
        Channel.PUSH: (settings.push_provider_url, settings.sandbox_url),
    }
    return {channel.value: (own or sandbox, not own) for channel, (own, sandbox) in chosen.items()}


def _shapes(settings: Settings) -> Mapping[str, tuple[int, int, int | None]]:
    topics = [*(lane.topic for lane in LANES.values()), DEAD_LETTER_TOPIC]
    found = topic_shapes(settings, topics)
    return {topic: (shape.partitions, shape.replicas, shape.min_insync) for topic, shape in found.items()}


def _queues(application: Celery) -> dict[str, set[str]]:
    answers = application.control.inspect(timeout=_INSPECT_SECONDS).active_queues() or {}
    return {worker: {queue["name"] for queue in queues} for worker, queues in answers.items()}


def _relay_runs(application: Celery) -> int:
    answers = application.control.inspect(timeout=_INSPECT_SECONDS).stats() or {}
    return sum(stats.get("total", {}).get(TASK_RELAY, 0) for stats in answers.values())


def _flow(status: Status) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    snapshot = status.look(hours=1, sample_seconds=0.0)
    return snapshot.priorities, snapshot.breakers
