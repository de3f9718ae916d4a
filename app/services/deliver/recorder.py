"""The recorder of a worker process: outcomes and give-backs, written in batches by one thread.

Record, then release the guard, then schedule the countdown: in that order and after the commit. A batch that the
database refuses as a whole is taken apart, so that one bad outcome does not hold up the others; while the database
cannot be reached its outcomes wait here, bounded by the windows of the lanes. Nothing is sent again because a
record failed: the row stays SENDING, and then UNKNOWN.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Event, Thread
from time import monotonic

from redis.exceptions import RedisError
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError

from app.db import deliveries, inbox_arrivals
from app.db.deliveries import Recordable
from app.db.steady import SteadyConnections
from app.domain.kinds import Channel
from app.domain.states import TERMINAL
from app.limits.guard import Guard
from app.observability import metrics
from app.observability.logging import get_logger
from app.queues import LANES
from app.services.arrivals import Arrivals
from app.services.deliver.countdowns import Countdown, Countdowns
from app.services.deliver.dead_addresses import DeadAddresses, reason_of
from app.services.deliver.decide import Rules, decide
from app.services.deliver.feedback import Feedback
from app.services.deliver.lane import Lane
from app.services.deliver.work import Finished, Work

log = get_logger(__name__)

BATCH = 200
LINGER_SECONDS = 0.005
"""How long the first outcome of a batch waits for company, unless the batch is full before."""
_PAUSE_SECONDS = 0.5
_TICK_SECONDS = 60.0

_Done = tuple[Lane, Finished]
_Return = tuple[Lane, list[Work], float, str]


class Recorder:
    """Writes what became of calls. `put` and `give_back` never block."""

    def __init__(
        self,
        *,
        database: SteadyConnections,
        guard: Guard,
        owner: str,
        rules: Rules,
        countdowns: Countdowns,
        grace_seconds: float,
        feedback: Feedback,
        dead_addresses: DeadAddresses,
        arrivals: Arrivals,
        advance: Callable[[], object],
        wake: Callable[[Sequence[str]], object],
    ) -> None:
        """`advance` decides what follows a failure that has a fallback, `wake` who is next in an order.

        Both may raise: upkeep and the rows' own times make up for it.
        """
        self._database = database
        self._guard = guard
        self._owner = owner
        self._rules = rules
        self._countdowns = countdowns
        self._grace_seconds = grace_seconds
        self._feedback = feedback
        self._dead_addresses = dead_addresses
        self._arrivals = arrivals
        self._advance = advance
        self._wake = wake
        self._done: deque[_Done] = deque()
        self._returns: deque[_Return] = deque()
        self._changed = Condition()
        self._is_draining = False
        self._give_up = Event()
        self._thread = Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, lane: Lane, finished: list[Finished]) -> None:
        """Take calls that ended."""
        with self._changed:
            was_empty = not self._done
            self._done.extend([(lane, item) for item in finished])
            if was_empty or len(self._done) >= BATCH:
                self._changed.notify_all()

    def give_back(self, lane: Lane, work: list[Work], delay_seconds: float, reason: str) -> None:
        """Take claims whose calls have not begun and will not."""
        with self._changed:
            self._returns.append((lane, work, delay_seconds, reason))
            self._changed.notify_all()

    def stop(self, wait_seconds: float) -> int:
        """Write what waits, for `wait_seconds` at most; return how many outcomes are lost to rescue."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(wait_seconds)
            self._give_up.set()
            self._thread.join(1.0)
        return len(self._done)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_something, _TICK_SECONDS)
                if not self._is_draining and not self._returns:
                    self._changed.wait_for(self._is_worth_it, LINGER_SECONDS)
                returns = list(self._returns)
                self._returns.clear()
                batch = [self._done.popleft() for _ in range(min(BATCH, len(self._done)))]
            for lane, work, delay_seconds, reason in returns:
                self._survive(partial(self._write_return, lane, work, delay_seconds, reason), len(work))
            if batch:
                self._survive(partial(self._write, batch), len(batch))
            elif (self._is_draining and not self._returns) or self._give_up.is_set():
                return

    @staticmethod
    def _survive(step: Callable[[], object], count: int) -> None:
        """Do one step. A fault of ours leaves its rows to rescue; without this thread all that follow would be."""
        try:
            step()
        except Exception:
            log.exception("recorder_step_failed", count=count)

    def _has_something(self) -> bool:
        return bool(self._done or self._returns or self._is_draining)

    def _is_worth_it(self) -> bool:
        return len(self._done) >= BATCH or bool(self._returns) or self._is_draining

    def _write(self, batch: list[_Done]) -> None:
        self._feedback.tell(batch)
        records: dict[str, tuple[Lane, Finished, Recordable]] = {}
        again: list[_Done] = []
        for lane, finished in batch:
            if finished.work.id in records:
                again.append((lane, finished))
                continue
            record = decide(finished, lane.provider.name, lane.key.priority, self._rules)
            records[record.id] = (lane, finished, record)
        self._reserve(records)
        inboxes = {done.work.id: done.work.inbox for _, done, _ in records.values() if done.work.inbox is not None}
        statuses = self._record([record for _, _, record in records.values()], inboxes)
        self._release([(record.id, record.token) for _, _, record in records.values()])
        lost: Counter[str] = Counter()
        for lane, finished, record in records.values():
            status = statuses.get(record.id)
            if status is None:
                lost[record.outcome] += 1
            elif record.grace_seconds and status == "PENDING":
                self._schedule(lane, finished, record)
            elif record.outcome == "rejected":
                self._note_address(lane, finished)
        self._tell_waiting(records, statuses)
        for outcome, count in lost.items():
            metrics.RECORD_LOST.labels(outcome).inc(count)
            log.info("outcomes_not_ours", outcome=outcome, count=count)
        if again:
            self._write(again)

    def _tell_waiting(
        self, records: dict[str, tuple[Lane, Finished, Recordable]], statuses: dict[str, str]
    ) -> None:
        """Decide what follows failures that have a fallback, and who is next in an order."""
        failed = sum(
            finished.work.has_fallback and statuses.get(record.id) == "FAILED"
            for _, finished, record in records.values()
        )
        if failed:
            self._survive(self._advance, failed)
        ordered = [
            record.id
            for _, finished, record in records.values()
            if finished.work.is_ordered and statuses.get(record.id) in TERMINAL
        ]
        if ordered:
            self._survive(partial(self._wake, ordered), len(ordered))

    def _note_address(self, lane: Lane, finished: Finished) -> None:
        """Let nothing be sent any more to an address that the provider called dead."""
        reason = reason_of(finished.outcome)
        if reason is not None and lane.key.channel is not Channel.IN_APP:
            work = finished.work
            entry = (work.tenant_id, lane.key.channel, work.message.recipient, reason, lane.provider.name)
            self._dead_addresses.note([entry])

    def _reserve(self, records: dict[str, tuple[Lane, Finished, Recordable]]) -> None:
        """Move the relay's time of those retries that will have a countdown."""
        by_queue: dict[str, list[Recordable]] = {}
        for lane, _, record in records.values():
            if record.delay_seconds is not None and record.outcome in ("retry", "throttled"):
                by_queue.setdefault(LANES[lane.key.priority].queue, []).append(record)
        for queue, retries in by_queue.items():
            reserved = self._countdowns.reserve(queue, [record.delay_seconds or 0.0 for record in retries])
            for record, is_reserved in zip(retries, reserved, strict=True):
                record.grace_seconds = self._grace_seconds if is_reserved else 0.0

    def _schedule(self, lane: Lane, finished: Finished, record: Recordable) -> None:
        queue = LANES[lane.key.priority].queue
        attempt = finished.work.attempts + 1
        delay = record.delay_seconds or 0.0
        self._countdowns.schedule(Countdown(record.id, lane.key.channel, attempt, queue, delay))

    def _record(self, records: Sequence[Recordable], inboxes: dict[str, tuple[str, str]]) -> dict[str, str]:
        """Write outcomes until it succeeds or the process gives up; return the new status of what was ours.

        `inboxes` says of in-app deliveries whose inbox they come into.
        """
        while records:
            started = monotonic()
            try:
                statuses = self._write_once(records, inboxes, started)
            except (DataError, IntegrityError, ProgrammingError) as error:
                if len(records) == 1:
                    log.exception("outcome_not_recordable", delivery_id=records[0].id, error=type(error).__name__)
                    return {}
                middle = len(records) // 2
                return self._record(records[:middle], inboxes) | self._record(records[middle:], inboxes)
            except SQLAlchemyError as error:
                log.warning("recorder_waits_for_database", count=len(records), error=type(error).__name__)
                if self._give_up.wait(_PAUSE_SECONDS):
                    log.exception("outcomes_left_to_rescue", count=len(records))
                    return {}
            else:
                metrics.RECORD_SECONDS.observe(monotonic() - started)
                return statuses
        return {}

    def _write_once(
        self, records: Sequence[Recordable], inboxes: dict[str, tuple[str, str]], started: float
    ) -> dict[str, str]:
        concerned = [inboxes[record.id] for record in records if record.id in inboxes]
        if not concerned:
            return self._database.run(deliveries.record, records, started)
        with self._arrivals.expected(concerned):
            statuses, boxed = self._database.run(inbox_arrivals.record, records, started)
        for each in boxed:
            self._arrivals.tell(each.tenant_id, each.user_id, each.notification_id)
        return statuses

    def _write_return(self, lane: Lane, work: list[Work], delay_seconds: float, reason: str) -> None:
        self._feedback.unsent(lane, work)
        ids, tokens = [item.id for item in work], [item.token for item in work]
        while True:
            try:
                self._database.run(deliveries.give_back, ids, tokens, delay_seconds)
            except SQLAlchemyError as error:
                log.warning("recorder_waits_for_database", count=len(work), error=type(error).__name__)
                if self._give_up.wait(_PAUSE_SECONDS):
                    return
            else:
                break
        metrics.GIVEN_BACK.labels(reason).inc(len(work))
        self._release(list(zip(ids, tokens, strict=True)))

    def _release(self, claims: Sequence[tuple[str, int]]) -> None:
        try:
            self._guard.release(claims, self._owner)
        except RedisError:
            log.debug("guard_unreachable", count=len(claims))
