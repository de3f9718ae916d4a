"""The relay: PENDING rows that are due → published and acknowledged → QUEUED, in the transaction that locked them.

Invariants: a row becomes QUEUED only after its own acknowledgement, and its number is drawn after that; whatever
fails rolls back, costs no attempt, and is tried again after a pause that grows, so that a broker outage spins
nothing; the channels of a priority take turns; and no more than a channel can take in a minute is in the pipe, the
rest waits as PENDING, where it costs nothing and delays nobody. Any number of relays may run at once.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, TimeoutError  # noqa: A004  a full pool

from app.db import outbox
from app.domain.kinds import Channel, Priority
from app.kafka.producer import Refusal
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.markers import Markers
from app.services.outlets import Outlet

_log = get_logger(__name__)

COUNT_EVERY_SECONDS = 1.0
SWEEP_EVERY_SECONDS = 2.0
_PAUSE_SECONDS = 0.25
_PAUSE_CAP_SECONDS = 5.0
_SET_ASIDE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """`batch` rows a transaction, `budget_seconds` a run, and how many rows of a channel may be in the pipe."""

    batch: int
    budget_seconds: float
    acknowledge_seconds: float
    in_pipe: Mapping[Channel, int]
    """Absent or 0: no bound."""


@dataclass(slots=True)
class _Lane:
    """What one process knows about one priority; only the thread that holds `running` touches the rest."""

    running: Lock = field(default_factory=Lock)
    is_asked_again: bool = False
    next_sweep_at: float = 0.0
    counted_at: float = float("-inf")
    in_pipe: dict[Channel, int] = field(default_factory=dict)
    is_full: dict[Channel, bool] = field(default_factory=dict)
    failures: int = 0
    paused_until: float = 0.0


@dataclass(frozen=True, slots=True)
class _Batch:
    """What became of one transaction: rows locked, rows QUEUED, refusals, lateness of the first row."""

    rows: int
    count: int
    refusals: list[Refusal]
    late_seconds: float


class Relay:
    """Publishes what is due of one priority. An outage of broker or database is not raised: it pauses."""

    def __init__(
        self,
        engine: Engine,
        outlet: Outlet,
        markers: Markers,
        limits: RelayLimits,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._engine = engine
        self._outlet = outlet
        self._markers = markers
        self._limits = limits
        self._clock = clock
        self._lanes = {priority: _Lane() for priority in Priority}
        self._beside = ThreadPoolExecutor(len(Priority), thread_name_prefix="relay-beside")

    def run(self, priority: Priority) -> int:
        """Publish until nothing is due or the budget is over; return how many rows.

        One run a priority at a time in a process: a second one only asks the first to look once more.
        """
        lane = self._lanes[priority]
        lane.is_asked_again = True
        deadline = self._clock() + self._limits.budget_seconds
        total = 0
        while lane.is_asked_again and self._clock() < deadline and lane.running.acquire(blocking=False):
            try:
                lane.is_asked_again = False
                total += self._until_nothing_is_due(priority, lane, deadline)
            except (DBAPIError, TimeoutError) as error:
                # The transaction is gone and with it every lock; what was published meanwhile is a repetition.
                if not lane.failures:
                    _log.error("relay_database_unavailable", priority=priority.name, reason=type(error).__name__)
                metrics.RELAY_FAILED.labels("database").inc()
                self._pause(lane)
            finally:
                lane.running.release()
        return total

    def _until_nothing_is_due(self, priority: Priority, lane: _Lane, deadline: float) -> int:
        total = found_by_sweep = 0
        while self._clock() < deadline and self._may_try(priority, lane):
            is_sweep = self._clock() >= lane.next_sweep_at
            published = self._round(priority, lane, is_sweep=is_sweep)
            total += published
            if is_sweep:
                lane.next_sweep_at = self._clock() + SWEEP_EVERY_SECONDS
                found_by_sweep = published
            self._markers.published(priority, published)
            self._markers.emit_if_due(priority, self._limits.acknowledge_seconds)
            if not published and found_by_sweep and not is_sweep:
                # The recent days are empty but older ones were not: look there again at once.
                lane.next_sweep_at, found_by_sweep = 0.0, 0
            elif not published or not any(lane.is_full.values()):
                break  # what became due since then comes with its own nudge
        return total

    def _may_try(self, priority: Priority, lane: _Lane) -> bool:
        """After a failure, wait; then ask the broker for a sign of life while no row is locked."""
        if not lane.failures:
            return True
        if self._clock() < lane.paused_until:
            return False
        if self._outlet.partitions(priority) is None:
            self._pause(lane)
            return False
        return True

    def _round(self, priority: Priority, lane: _Lane, *, is_sweep: bool) -> int:
        """Give each channel that has due rows one batch; return how many rows were published."""
        with self._looking() as connection:
            ages = outbox.due_channels(connection, priority, is_sweep=is_sweep)
        lane.is_full = {channel: lane.is_full.get(channel, False) for channel in ages}
        if is_sweep or ages:
            metrics.OLDEST_DUE_AGE.labels(priority.name).set(max(ages.values(), default=0.0))
        published = 0
        for channel in sorted(ages, key=lambda due: -ages[due]):
            for batch in self._batches(priority, channel, self._room(priority, channel, lane), lane, is_sweep):
                self._settle(priority, channel, lane, batch)
                published += batch.count
            if lane.failures:
                break
        return published

    def _batches(
        self, priority: Priority, channel: Channel, room: int, lane: _Lane, is_sweep: bool
    ) -> list[_Batch]:
        """Publish up to `room` rows: one batch, or two side by side where the last one was full.

        The second one makes the database work while the first one is being produced; they cannot meet, since
        each passes over what the other has locked.
        """
        size = self._limits.batch
        if room <= 0:
            lane.is_full[channel] = False
            return []
        if room <= size or not lane.is_full.get(channel):
            made = [self._batch(priority, channel, min(room, size), is_sweep)]
        else:
            beside = self._beside.submit(self._batch, priority, channel, room - size, is_sweep)
            try:
                made = [self._batch(priority, channel, size, is_sweep)]
            finally:
                wait([beside])
            made.append(beside.result())
        lane.is_full[channel] = made[0].rows == min(room, size)
        return made

    def _looking(self) -> Connection:
        """Return a connection for one statement that changes nothing: no transaction, one round trip."""
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _room(self, priority: Priority, channel: Channel, lane: _Lane) -> int:
        """Return how many rows of `channel` may enter now, at most two batches; one row after a failure."""
        most = 1 if lane.failures else 2 * self._limits.batch
        bound = self._limits.in_pipe.get(channel, 0)
        if not bound:
            return most
        if self._clock() - lane.counted_at >= COUNT_EVERY_SECONDS:
            with self._looking() as connection:
                lane.in_pipe = outbox.queued_counts(connection, priority)
            lane.counted_at = self._clock()
            for counted in Channel:
                metrics.IN_PIPE.labels(counted.value, priority.name).set(lane.in_pipe.get(counted, 0))
        return min(most, bound - lane.in_pipe.get(channel, 0))

    def _batch(self, priority: Priority, channel: Channel, limit: int, is_sweep: bool) -> _Batch:
        """Lock, publish, wait for every acknowledgement, stamp, commit: one transaction, one connection."""
        started = self._clock()
        with self._engine.connect() as connection:
            rows = outbox.claim_due(connection, priority, channel, limit, is_sweep=is_sweep)
            if not rows:
                return _Batch(0, 0, [], 0.0)
            verdicts = self._outlet.publish(priority, channel, rows, self._limits.acknowledge_seconds)
            done = [row.id for row, verdict in zip(rows, verdicts, strict=True) if verdict is None]
            refused = {row.id: verdict for row, verdict in zip(rows, verdicts, strict=True) if verdict is not None}
            count = outbox.mark_queued(connection, done) if done else 0
            for reason, about_record in {(v.reason, v.about_record) for v in refused.values()}:
                ids = [i for i, v in refused.items() if (v.reason, v.about_record) == (reason, about_record)]
                if about_record:
                    outbox.set_aside(connection, ids, f"publish: {reason}", _SET_ASIDE_SECONDS)
                else:
                    outbox.note_refusal(connection, ids, f"publish: {reason}")
            connection.commit()
        metrics.RELAY_BATCH_SECONDS.labels(priority.name).observe(self._clock() - started)
        return _Batch(len(rows), count, list(refused.values()), rows[0].late_seconds)

    def _settle(self, priority: Priority, channel: Channel, lane: _Lane, batch: _Batch) -> None:
        if batch.rows:
            self._judge(priority, lane, batch.refusals)
            lane.in_pipe[channel] = lane.in_pipe.get(channel, 0) + batch.count
            metrics.RELAY_PUBLISHED.labels(channel.value, priority.name).inc(batch.count)
            metrics.PUBLISH_LAG_SECONDS.labels(priority.name).observe(max(batch.late_seconds, 0.0))

    def _judge(self, priority: Priority, lane: _Lane, refusals: list[Refusal]) -> None:
        outages = [refusal.reason for refusal in refusals if not refusal.about_record]
        for refusal in refusals:
            metrics.RELAY_FAILED.labels("record" if refusal.about_record else "outage").inc()
        if not outages:
            if lane.failures:
                _log.info("relay_recovered", priority=priority.name, failures=lane.failures)
            lane.failures = 0
            return
        if not lane.failures:
            _log.error("relay_outage", priority=priority.name, reason=outages[0], rows=len(outages))
        self._pause(lane)

    def _pause(self, lane: _Lane) -> None:
        lane.failures += 1
        pause = min(_PAUSE_SECONDS * 2.0 ** min(lane.failures - 1, 10), _PAUSE_CAP_SECONDS)
        lane.paused_until = self._clock() + pause
