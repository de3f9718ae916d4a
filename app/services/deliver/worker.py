"""The delivery worker of one process: lanes on demand, one dispatcher, one recorder, and an orderly end.

Shutdown hands everything that waits unclaimed back to the table, lets the calls under way end within
`stop_seconds`, writes their outcomes, and only then lets the process go. Whatever is left by then stays SENDING
and is found by rescue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic

from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from app.db import deliveries
from app.db.steady import SteadyConnections
from app.domain.kinds import Channel, Priority
from app.limits.breaker import Breaker
from app.limits.crashes import CrashCounter
from app.limits.guard import Guard
from app.limits.rate import RateLimiter
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.deliver.check import Check
from app.services.deliver.claim import Claimer
from app.services.deliver.countdowns import Countdowns
from app.services.deliver.dead_addresses import DeadAddresses
from app.services.deliver.dispatcher import Dispatcher
from app.services.deliver.gate import Gate
from app.services.deliver.lane import Lane, LaneRules
from app.services.deliver.recorder import Recorder
from app.services.deliver.render import Renderer
from app.services.deliver.work import LaneKey, Parked
from providers.base import Provider

log = get_logger(__name__)

_FULL_DELAY_SECONDS = 15.0
_JOIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The Redis parts that a worker asks."""

    rate: RateLimiter
    breaker: Breaker
    guard: Guard
    crashes: CrashCounter


class DeliveryWorker:
    """Parks ids and sees them through. Built by `app.wiring_worker`; one a process."""

    def __init__(
        self,
        *,
        owner: str,
        providers: Mapping[Channel, Provider],
        rules: Mapping[Channel, LaneRules],
        reads: SteadyConnections,
        writes: SteadyConnections,
        turns: SteadyConnections,
        limits: WorkerLimits,
        renderer: Renderer,
        check: Check,
        dead_addresses: DeadAddresses,
        countdowns: Countdowns,
        recorder: Recorder,
        stop_seconds: float,
    ) -> None:
        self._owner = owner
        self._providers = providers
        self._rules = rules
        self._reads = reads
        self._writes = writes
        self._turns = turns
        self._limits = limits
        self._renderer = renderer
        self._check = check
        self._dead_addresses = dead_addresses
        self._countdowns = countdowns
        self._recorder = recorder
        self._stop_seconds = stop_seconds
        self._dispatcher = Dispatcher(recorder.put, recorder.give_back)
        self._lanes: dict[LaneKey, Lane] = {}
        self._threads: list[Thread] = []
        self._lock = Lock()
        self._is_started = False
        self._is_stopping = False
        self._handing_back: Thread | None = None

    def start(self) -> None:
        """Open what the first delivery needs: the loop, the providers, the recorder, a database connection."""
        with self._lock:
            if self._is_started:
                return
            self._is_started = True
        self._recorder.start()
        self._countdowns.start()
        self._dispatcher.start(self._providers.values())
        try:
            self._writes.run(_ping)
        except SQLAlchemyError as error:
            log.warning("database_not_ready", error=type(error).__name__)
        log.info("worker_started", owner=self._owner)

    def park(
        self, priority: Priority, channel: Channel, ids: Iterable[str], *, attempt: int | None, is_suspect: bool
    ) -> None:
        """Take ids from a message. `attempt` ties them to the attempts of their rows; a suspect is run alone.

        Ids that find no room go back to the table; an id that is parked already is not parked twice.
        """
        self.start()
        now = monotonic()
        lane = self._lane(LaneKey(priority, channel))
        refused = lane.parking.put(Parked(id_, now, attempt, is_suspect) for id_ in ids)
        if refused:
            reason = "shutdown" if self._is_stopping else "full"
            lane.defer_parked(refused, 0.0 if self._is_stopping else _FULL_DELAY_SECONDS, 0.5, reason)

    def mark(self, topic: str, partition: int, seq: int) -> None:
        """Write down that a marker came through: all that was before it in its list is parked or lost."""
        self._writes.brief(deliveries.mark, topic, partition, seq)

    def begin_stop(self) -> None:
        """Take nothing more on and hand back what waits, in a thread; returns at once, and may be called again."""
        with self._lock:
            if self._is_stopping or not self._is_started:
                return
            self._is_stopping = True
            self._handing_back = Thread(target=self._hand_back, name="hand-back", daemon=True)
            self._handing_back.start()

    def stop(self) -> None:
        """End the worker within about `stop_seconds`: calls under way end, their outcomes are written."""
        self.begin_stop()
        if self._handing_back is None:
            return
        until = monotonic() + self._stop_seconds
        self._handing_back.join(max(until - monotonic(), 0.0))
        for lane in list(self._lanes.values()):
            lane.window.wait_empty(max(until - monotonic(), 0.0))
        self._dispatcher.stop(self._providers.values())
        left = self._recorder.stop(_JOIN_SECONDS)
        self._countdowns.stop(_JOIN_SECONDS)
        self._dead_addresses.stop(_JOIN_SECONDS)
        self._reads.close()
        self._writes.close()
        self._turns.close()
        log.info("worker_stopped", owner=self._owner, left_to_rescue=left)

    def _lane(self, key: LaneKey) -> Lane:
        lane = self._lanes.get(key)
        if lane is not None:
            return lane
        with self._lock:
            if key not in self._lanes:
                self._lanes[key] = self._open_lane(key)
            return self._lanes[key]

    def _open_lane(self, key: LaneKey) -> Lane:
        limits = self._limits
        provider, rules = self._providers[key.channel], self._rules[key.channel]
        lane = Lane(
            key=key,
            provider=provider,
            rules=rules,
            reads=self._reads,
            writes=self._writes,
            turns=self._turns,
            crashes=limits.crashes,
            renderer=self._renderer,
            check=self._check,
        )
        gate = Gate(lane, limits.rate, limits.breaker)
        claimer = Claimer(
            lane,
            database=self._writes,
            guard=limits.guard,
            owner=self._owner,
            give_back_probes=gate.give_back_probes,
            submit=self._dispatcher.submit,
            give_back=self._recorder.give_back,
        )
        self._show(key.channel)
        if self._is_stopping:
            lane.close()
            return lane
        for name, target in (("prepare", lane.run_prepare), ("gate", gate.run), ("claim", claimer.run)):
            thread = Thread(target=target, name=f"{name}-{key}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return lane

    def _show(self, channel: Channel) -> None:
        """Let the gauges of a channel be read off its lanes, whenever somebody asks."""

        def lanes() -> list[Lane]:
            return [lane for key, lane in list(self._lanes.items()) if key.channel is channel]

        metrics.IN_FLIGHT.labels(channel.value).set_function(lambda: sum(one.window.in_flight for one in lanes()))
        metrics.PARKED.labels(channel.value).set_function(
            lambda: sum(len(one.parking) + len(one.ready) for one in lanes())
        )

    def _hand_back(self) -> None:
        for lane in list(self._lanes.values()):
            lane.close()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        for lane in list(self._lanes.values()):
            try:
                lane.hand_back()
            except SQLAlchemyError as error:
                log.warning("not_handed_back", lane=str(lane.key), error=type(error).__name__)


def _ping(connection: Connection) -> None:
    connection.exec_driver_sql("SELECT 1")
