"""The composition root's room for what moves rows between the table and the workers: relay, bridge and upkeep."""

from dataclasses import dataclass
from functools import partial

from app.db.deliveries import WRITE_OPTIONS
from app.db.outbox import PLANNER_OPTIONS
from app.db.session import make_engine
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Publisher
from app.kafka.reader import TopicReader
from app.kafka.topics import ensure_topics
from app.queues import BRIDGE_GROUP, DEAD_LETTER_TOPIC
from app.services.accept.deciding import Deciding
from app.services.accept.rows import Rows
from app.services.advance import Advance
from app.services.batches.chunks import Chunks
from app.services.batches.expand import Expand
from app.services.batches.forget import ForgetBatches
from app.services.dead_letters import DeadLetters
from app.services.erase import Erase
from app.services.expire import Expire
from app.services.markers import Markers
from app.services.nudge import Nudge
from app.services.outlets import DirectOutlet, KafkaOutlet, Outlet
from app.services.partitions import PartitionsAhead
from app.services.receipt import TakeReceipt
from app.services.relay import Relay, RelayLimits
from app.services.rescue_queued import RescueQueued
from app.services.rescue_sending import RescueSending
from app.services.resolve import Resolve, resend_pairs
from app.services.retention import Retention
from app.services.task_list import TaskList
from app.settings import Settings
from app.wiring import arrivals, broker_client, library, nudge, once_per_process, vault


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
    batches: ForgetBatches
    erase: Erase


@dataclass(frozen=True)
class RecoveryServices:
    """The sweeps that upkeep runs, and receipts."""

    rescue_sending: RescueSending
    resolve: Resolve
    expire: Expire
    advance: Advance
    take_receipt: TakeReceipt


@once_per_process
def outlet(settings: Settings) -> Outlet:
    """Return the way from the table to the workers that TRANSPORT names."""
    if settings.transport == "direct":
        return DirectOutlet(task_list(settings), chunk_sizes(settings))
    return KafkaOutlet(
        {priority: Publisher(settings) for priority in Priority},
        partial(ensure_topics, settings, 2.0),
        lambda tenant_id, user_id: vault(settings).index(tenant_id, "ordering", user_id).hex(),
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


@once_per_process
def upkeep_services(settings: Settings) -> UpkeepServices:
    """Return what keeps the tables in shape."""
    engine = make_engine(settings.database_url, application_name="arauto-upkeep", pool_size=2)
    return UpkeepServices(
        partitions=PartitionsAhead(engine, settings.partitions_ahead_days),
        batches=ForgetBatches(engine, settings.batch_abandoned_seconds),
        retention=Retention(
            engine,
            settings.retention_days,
            settings.idempotency_retention_days,
            settings.audit_retention_days,
        ),
        erase=Erase(engine, vault(settings)),
    )


@once_per_process
def expander(settings: Settings) -> Expand:
    """Return what expands batches. A segment is counted at its start, which may take long."""
    engine = make_engine(
        settings.database_url,
        application_name="arauto-batch",
        pool_size=3,
        statement_timeout_seconds=120.0,
        options=WRITE_OPTIONS,
    )
    return Expand(
        engine,
        vault(settings),
        nudge(settings).nudge,
        chunks=Chunks(
            vault(settings),
            Rows(vault(settings), settings.retry_attempts, settings.quiet_hours_spread_seconds),
            Deciding(vault(settings), library(settings), settings.schedule_max_days),
            library(settings),
        ),
        arrivals=arrivals(settings),
        running_limit=settings.batch_running_limit,
    )


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
        advance=Advance(engine, settings.retry_attempts, nudge(settings).nudge),
        take_receipt=TakeReceipt(engine),
    )
