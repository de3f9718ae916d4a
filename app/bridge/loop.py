"""One topic's loop: Kafka → one Celery list → commit.

Invariants: an offset is committed after its ids are in the list; a failed push is never passed, it is tried until
it succeeds or the partition goes to another; polling goes on meanwhile and keeps the membership; what was revoked
is neither committed nor pushed any more; while the list is long, the topic is paused and Kafka holds the excess.
Only what cannot be understood is set aside, and a run of nothing else stops the topic: then we are at fault.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Event
from time import monotonic

import redis

from app.bridge.batch import Handed, Plan, plan, read
from app.domain.envelope import Marker
from app.kafka.consumer import Rebalance, TopicConsumer
from app.observability import metrics
from app.observability.logging import get_logger
from app.queues import Lane
from app.services.dead_letters import DeadLetterOffice, Poison
from app.services.task_list import TaskList

_log = get_logger(__name__)

COMMIT_EVERY_SECONDS = 0.25
LENGTH_EVERY_SECONDS = 0.1
POLL_SECONDS = 0.2
SHOUT_EVERY_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_PAUSE_CAP_SECONDS = 2.0

OpenConsumer = Callable[[Rebalance], TopicConsumer]


@dataclass(frozen=True, slots=True)
class BridgeLimits:
    """`batch` records a poll, `chunk` ids a task, `high_water` tasks in a list, `poison_stop` records in a row."""

    batch: int
    chunk: int
    high_water: int
    poison_stop: int


class TopicLoop:
    """Runs until `stop` is set. One instance is one member of the topic's group, used by one thread."""

    def __init__(
        self,
        lane: Lane,
        open_consumer: OpenConsumer,
        tasks: TaskList,
        office: DeadLetterOffice,
        *,
        limits: BridgeLimits,
        stop: Event,
        joined: Callable[[str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._lane = lane
        self._tasks = tasks
        self._office = office
        self._limits = limits
        self._stop = stop
        self._joined = joined
        self._clock = clock
        self._enqueued: dict[int, int] = {}  # next offsets of what is in the list, for the last commit
        self._uncommitted: dict[int, int] = {}
        self._revoked: set[int] = set()
        self._carried: list[Handed | Poison] = []
        self._next_commit_at = 0.0
        self._next_length_at = 0.0
        self._next_push_at = 0.0
        self._is_paused = False
        self._poison_in_a_row = 0
        self._consumer = open_consumer(Rebalance(self._on_assign, self._on_revoke, self._on_lost))

    def run(self) -> None:
        """Bridge until told to stop or until the consumer breaks; what is enqueued is committed at the end."""
        try:
            while not self._stop.is_set():
                self._heed_the_list()
                self._revoked.clear()
                records, self._carried = self._carried, []
                if not records:
                    records = self._poll(self._limits.batch, gather_seconds=self._next_push_at - self._clock())
                if records:
                    self._hand_on(records)
                self._commit_if_due()
        finally:
            self._consumer.commit(self._enqueued, wait=True)
            self._consumer.close()

    def _poll(
        self, most: int, wait_seconds: float = POLL_SECONDS, gather_seconds: float = 0.0
    ) -> list[Handed | Poison]:
        return [read(record) for record in self._consumer.poll(most, wait_seconds, max(gather_seconds, 0.0))]

    def _stay_a_member(self, wait_seconds: float) -> None:
        """Poll while paused. What comes nevertheless was on its way already, and its turn is next."""
        self._carried += self._poll(1, wait_seconds)

    def _hand_on(self, records: list[Handed | Poison]) -> None:
        """Pass on what can be trusted; hold the topic in front of a run of poison that is too long."""
        trusted = self._trusted(records)
        if self._pass_on(records[:trusted]) and trusted < len(records):
            self._hold(next(record for record in records[trusted:] if isinstance(record, Poison)))

    def _pass_on(self, records: list[Handed | Poison]) -> bool:
        """Push the good ones, set the others aside, then note the offsets; False when told to stop before."""
        good = [record for record in records if isinstance(record, Handed)]
        bad = [record for record in records if isinstance(record, Poison)]
        if good and not self._persist(lambda: self._push(good)):
            return False
        if bad and not self._persist(lambda: self._set_aside(bad)):
            return False
        for record in records:
            if record.partition not in self._revoked:
                self._enqueued[record.partition] = self._uncommitted[record.partition] = record.offset + 1
        return True

    def _trusted(self, records: list[Handed | Poison]) -> int:
        """Count poison in a row; return how many records lie before a run beyond the limit, all if there is none.

        Such a run stays uncommitted until an operator starts us anew; what came before it must not wait for that.
        """
        behind_good = 0
        for number, record in enumerate(records):
            if isinstance(record, Poison):
                self._poison_in_a_row += 1
            elif not isinstance(record.item, Marker):
                self._poison_in_a_row = 0
                behind_good = number + 1
            if self._poison_in_a_row > self._limits.poison_stop:
                return behind_good
        return len(records)

    def _hold(self, record: Poison) -> None:
        self._pause(is_paused=True)
        next_shout = 0.0
        while not self._stop.is_set():
            if self._clock() >= next_shout:
                next_shout = self._clock() + SHOUT_EVERY_SECONDS
                _log.error(
                    "bridge_held_by_poison",
                    topic=self._lane.topic,
                    partition=record.partition,
                    offset=record.offset,
                    reason=record.reason,
                    in_a_row=self._poison_in_a_row,
                    next_step="deploy a bridge that understands the topic or roll its producer back; restart",
                )
            self._stay_a_member(POLL_SECONDS)
            self._commit_if_due()

    def _persist(self, attempt: Callable[[], bool]) -> bool:
        """Try until it succeeds; False when told to stop before. Polling meanwhile keeps the membership."""
        wait, is_first = _PAUSE_SECONDS, True
        while not attempt():
            if is_first:
                self._pause(is_paused=True)
                is_first = False
            until = self._clock() + wait
            while self._clock() < until:
                if self._stop.is_set():
                    return False
                self._stay_a_member(min(wait, POLL_SECONDS))
            wait = min(wait * 2, _PAUSE_CAP_SECONDS)
        if not is_first:
            self._pause(is_paused=False)
            _log.info("bridge_recovered", topic=self._lane.topic)
        return True

    def _push(self, records: list[Handed]) -> bool:
        made = plan(
            self._lane,
            self._limits.chunk,
            (record for record in records if record.partition not in self._revoked),
        )
        if not made.tasks:
            return True
        try:
            self._tasks.push(self._lane.queue, made.tasks)
        except redis.RedisError as error:
            metrics.BRIDGE_ERRORS.labels("enqueue").inc()
            _log.warning("bridge_enqueue_failed", topic=self._lane.topic, reason=type(error).__name__)
            return False
        self._next_push_at = self._clock() + self._lane.gather_seconds
        self._measure(made)
        return True

    def _measure(self, made: Plan) -> None:
        priority = self._lane.priority.name
        for channel, size in made.chunks:
            metrics.BRIDGE_ENQUEUED.labels(channel.value, priority).inc(size)
            metrics.BRIDGE_CHUNK.labels(priority).observe(size)
        if made.markers:
            metrics.BRIDGE_MARKERS.labels(self._lane.topic).inc(made.markers)

    def _set_aside(self, records: list[Poison]) -> bool:
        mine = [record for record in records if record.partition not in self._revoked]
        if not self._office.set_aside(self._lane.topic, mine):
            metrics.BRIDGE_ERRORS.labels("dead_letter").inc()
            return False
        for record in mine:
            metrics.BRIDGE_DEAD_LETTERED.labels(self._lane.topic, "poison").inc()
            _log.error(
                "record_dead_lettered",
                topic=self._lane.topic,
                partition=record.partition,
                offset=record.offset,
                reason=record.reason,
            )
        return True

    def _heed_the_list(self) -> None:
        """Pause above the high-water mark, go on below half of it."""
        if self._clock() < self._next_length_at:
            return
        self._next_length_at = self._clock() + LENGTH_EVERY_SECONDS
        try:
            length = self._tasks.length(self._lane.queue)
        except redis.RedisError as error:
            metrics.BRIDGE_ERRORS.labels("length").inc()
            _log.debug("bridge_length_unknown", topic=self._lane.topic, reason=type(error).__name__)
            return
        if not self._is_paused and length > self._limits.high_water:
            self._pause(is_paused=True)
        elif self._is_paused and length <= self._limits.high_water // 2:
            self._pause(is_paused=False)

    def _pause(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused
        if is_paused:
            self._consumer.pause()
        else:
            self._consumer.resume()
        metrics.BRIDGE_PAUSED.labels(self._lane.topic).set(int(is_paused))

    def _commit_if_due(self) -> None:
        if self._uncommitted and self._clock() >= self._next_commit_at:
            self._next_commit_at = self._clock() + COMMIT_EVERY_SECONDS
            self._consumer.commit(self._uncommitted)
            self._uncommitted = {}

    def _on_assign(self, partitions: Iterable[int]) -> None:
        """Ours again: what comes now was read again from the committed offset, and counts."""
        self._revoked -= set(partitions)
        self._joined(self._lane.topic)

    def _on_revoke(self, partitions: Iterable[int]) -> None:
        """Still ours for the moment: commit for good what was enqueued, forget the rest."""
        gone = set(partitions)
        self._consumer.commit(_only(self._enqueued, gone), wait=True)
        self._on_lost(gone)

    def _on_lost(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        self._revoked |= gone
        self._carried = [record for record in self._carried if record.partition not in gone]
        for partition in gone:
            self._enqueued.pop(partition, None)
            self._uncommitted.pop(partition, None)


def _only(offsets: Mapping[int, int], partitions: set[int]) -> dict[int, int]:
    return {partition: offset for partition, offset in offsets.items() if partition in partitions}
