"""One lane: the way of one priority and channel from parked ids to rendered work that is ready to go.

The `prepare` thread lives here. Invariants: an exception concerns one id only; an id waits at most
`rate_wait_seconds` unclaimed, which is less than rescue holds a message for lost, and is then deferred by
compare-and-set, at no attempt.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from time import monotonic

from redis.exceptions import RedisError
from sqlalchemy.exc import DataError, SQLAlchemyError

from app.db import deliveries, ordering, withhold
from app.db.deliveries import Loaded
from app.db.steady import SteadyConnections
from app.domain.kinds import Channel
from app.limits.crashes import CrashCounter
from app.observability import metrics
from app.observability.logging import get_logger
from app.sealing import UnknownKeyError
from app.services.accept.plan import ADDRESS_SUPPRESSED
from app.services.deliver.buffers import Buffer, Parking, Window
from app.services.deliver.check import Check, Sorted
from app.services.deliver.pacer import Pacer
from app.services.deliver.render import Renderer, RenderError
from app.services.deliver.work import LaneKey, Parked, Work
from providers.base import Message, Provider

log = get_logger(__name__)

NEARLY_DUE_SECONDS = 2.0
"""A countdown that is at most this early (clocks differ) is parked until it is due; an earlier one is dropped."""
KEY_MISSING_SECONDS = 60.0
"""A delivery whose key this worker lacks waits this long for another worker, or for a repaired one."""
CRASHES_ALLOWED = 3
SERVER_PAUSE_SECONDS = 1.0
_TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LaneRules:
    """What a lane needs to know of the installation. Durations in seconds; a `limit` of 0 is no limit."""

    batch: int
    window: int
    parked: int
    limit_per_second: int
    rate_wait_seconds: float
    lease_seconds: float
    fence_margin_seconds: float
    guard_seconds: float
    ordering_wait_seconds: float = 60.0


class Lane:
    """Holds the buffers of one lane, and turns parked ids into ready work."""

    def __init__(
        self,
        *,
        key: LaneKey,
        provider: Provider,
        rules: LaneRules,
        reads: SteadyConnections,
        writes: SteadyConnections,
        turns: SteadyConnections,
        crashes: CrashCounter,
        renderer: Renderer,
        check: Check,
    ) -> None:
        self.key = key
        self.provider = provider
        self.rules = rules
        self.parking = Parking(rules.parked)
        self.ready: Buffer[Work] = Buffer()
        self.granted: Buffer[Work] = Buffer()
        self.window = Window(rules.window)
        self.pacer = Pacer(rules.limit_per_second)
        self.stopped = Event()
        self._reads = reads
        self._writes = writes
        self._turns = turns
        self._crashes = crashes
        self._render = renderer
        self._check = check

    def run_prepare(self) -> None:
        """Load and render what is parked until the lane stops; the body of the prepare thread."""
        rules = self.rules
        while not self.stopped.is_set():
            if not self.ready.wait_below(rules.batch, _TICK_SECONDS):
                self._defer_overdue()
                continue
            taken = self.parking.take(rules.batch, _TICK_SECONDS * 60)
            if taken:
                undo = partial(self.parking.put_back, taken)
                self.attempt_step("prepare", partial(self._prepare, taken), undo, partial(self._take_apart, taken))

    def attempt_step(
        self,
        step: str,
        act: Callable[[], None],
        undo: Callable[[], None],
        isolate: Callable[[], None] | None = None,
    ) -> None:
        """Do one step of this lane; when the database or Redis cannot be reached, undo it and pause a second.

        Anything else is a fault of ours or of the data. It ends no thread, for nobody would start another one: the
        step is undone too, or with `isolate` narrowed down to what is at fault.
        """
        try:
            act()
        except Exception as error:
            is_outage = isinstance(error, SQLAlchemyError | RedisError) and not isinstance(error, DataError)
            if is_outage:
                log.warning("lane_waits_for_server", lane=str(self.key), step=step, error=type(error).__name__)
            else:
                log.exception("lane_step_failed", lane=str(self.key), step=step)
            (undo if is_outage or isolate is None else isolate)()
            self.stopped.wait(SERVER_PAUSE_SECONDS)

    def defer(self, pairs: Sequence[tuple[str, int]], delay_seconds: float, spread: float, reason: str) -> None:
        """Put unclaimed rows, as (id, attempts), back into the table; costs no attempt."""
        if not pairs:
            return
        count = self._writes.run(
            deliveries.defer, [pair[0] for pair in pairs], [pair[1] for pair in pairs], delay_seconds, spread
        )
        metrics.DEFERRED.labels(reason).inc(count)
        log.info("deliveries_deferred", lane=str(self.key), count=count, reason=reason)

    def defer_parked(self, parked: Sequence[Parked], delay_seconds: float, spread: float, reason: str) -> None:
        """Defer ids that were not loaded yet; one whose row has moved on since its message was sent is dropped."""
        if not parked:
            return
        wanted = {item.id: item.attempt for item in parked}
        found = self._reads.run(deliveries.attempts_of, list(wanted))
        pairs = [(id_, attempts) for id_, attempts in found if wanted[id_] in (None, attempts)]
        self.defer(pairs, delay_seconds, spread, reason)

    def _defer_overdue(self) -> None:
        """Defer ids that have waited long enough behind a full lane."""
        old = self.parking.take_older(1000, monotonic() - self.rules.rate_wait_seconds)
        if old:
            act = partial(self.defer_parked, old, self.rules.rate_wait_seconds / 3, 0.5, "wait")
            self.attempt_step("defer", act, partial(self.parking.put_back, old))

    def _prepare(self, taken: Sequence[Parked]) -> None:
        if not taken[0].is_suspect:
            self._load_and_render(taken)
            return
        try:
            if self._counted_starts(taken[0].id) > CRASHES_ALLOWED:
                failure = (taken[0].id, None, "undeliverable", "took its worker down again and again")
                self._writes.run(deliveries.reject, [failure])
                log.error("delivery_undeliverable", delivery_id=taken[0].id)
            else:
                self._load_and_render(taken)
        finally:
            # Also after an error: this worker is alive, and an outage of the database is no crime of the delivery.
            self._forget_start(taken[0].id)

    def _take_apart(self, taken: Sequence[Parked]) -> None:
        """Let each id of a chunk that failed be tried alone; one that fails alone is left to rescue."""
        if len(taken) > 1:
            self.parking.put_back([replace(parked, is_suspect=True) for parked in taken])
        else:
            log.error("delivery_left_to_rescue", delivery_id=taken[0].id)

    def _counted_starts(self, id_: str) -> int:
        try:
            return self._crashes.started([id_])[0]
        except RedisError:
            log.warning("crash_counter_unreachable", delivery_id=id_)
            return 0

    def _forget_start(self, id_: str) -> None:
        try:
            self._crashes.finished([id_])
        except RedisError:
            log.warning("crash_counter_unreachable", delivery_id=id_)

    def _load_and_render(self, taken: Sequence[Parked]) -> None:
        rows = self._reads.run(deliveries.load, [parked.id for parked in taken])
        turn = self._in_turn(rows)
        self._reads.run(self._render.gather, rows)
        now = monotonic()
        wanted = {parked.id: parked for parked in taken}
        due = [row for row in rows if self._is_for_now(row, wanted[row.id], now) and row.id not in turn]
        sorted_rows = self._check.sort(due)
        ready: list[tuple[Loaded, Work]] = []
        failures: list[tuple[str, int | None, str, str]] = []
        locked: list[tuple[str, int]] = []
        for row, left in sorted_rows.go:
            try:
                message = self._render(row)
            except RenderError as error:
                failures.append((row.id, row.attempts, error.code, error.detail))
            except UnknownKeyError as error:
                log.error("encryption_key_missing", delivery_id=row.id, error=str(error))  # noqa: TRY400
                locked.append((row.id, row.attempts))
            except Exception as error:
                log.exception("render_failed", delivery_id=row.id)
                failures.append((row.id, row.attempts, "render_failed", type(error).__name__))
            else:
                ready.append((row, self._work(row, message, wanted[row.id].parked_at, now, left)))
        if len(rows) < len(wanted):
            metrics.CLAIM_LOST.labels(self.key.priority.name).inc(len(wanted) - len(rows))
        dead = self._check.suppressed(self._reads, [(row, work.message.recipient) for row, work in ready])
        sorted_rows.withheld += [(row.id, row.attempts, ADDRESS_SUPPRESSED) for row, _ in ready if row.id in dead]
        self._hold(sorted_rows)
        if failures:
            self._reject(failures)
        self.defer(locked, KEY_MISSING_SECONDS, 0.5, "key")
        passed = [work for row, work in ready if row.id not in dead]
        if passed:
            self.ready.put(passed)

    def _work(self, row: Loaded, message: Message, parked_at: float, now: float, left: float) -> Work:
        return Work(
            row.id,
            row.attempts,
            row.attempts_allowed,
            message,
            parked_at,
            now + row.due_in,
            has_fallback=row.has_fallback,
            is_ordered=row.is_ordered,
            tenant_id=row.tenant_id,
            quiet_at=now + left,
            inbox=(row.tenant_id, row.user_id) if self.key.channel is Channel.IN_APP else None,
        )

    def _hold(self, found: Sorted) -> None:
        """Write down what is held over quiet hours and what is called off."""
        if found.held:
            count = self._writes.run(withhold.hold, found.held)
            metrics.DEFERRED.labels("quiet_hours").inc(count)
            log.info("deliveries_deferred", lane=str(self.key), count=count, reason="quiet_hours")
        if found.withheld:
            count = self._writes.run(withhold.withhold, found.withheld)
            for code, number in Counter(code for _, _, code in found.withheld).items():
                metrics.WITHHELD.labels(self.key.channel.value, code).inc(number)
            log.info("deliveries_withheld", lane=str(self.key), count=count)

    def _in_turn(self, rows: Sequence[Loaded]) -> Collection[str]:
        """Put back what has to wait for an earlier delivery of its user; return those ids.

        Looked at once more when they are back: an earlier one that ended in between found nothing to wake.
        """
        attempts = {row.id: row.attempts for row in rows if row.is_ordered and row.due_in <= 0}
        if not attempts:
            return ()
        bound = self.rules.ordering_wait_seconds
        held = self._turns.run(ordering.blocked, list(attempts), bound)
        if held:
            pairs = [(id_, attempts[id_]) for id_ in held]
            count = self._writes.run(ordering.wait, pairs, list(held.values()))
            metrics.DEFERRED.labels("ordering").inc(count)
            still = self._turns.run(ordering.blocked, list(held), bound)
            if free := [id_ for id_ in held if id_ not in still]:
                self._turns.run(ordering.wake, free)
        return held

    def _is_for_now(self, row: Loaded, parked: Parked, now: float) -> bool:
        """Tell whether a loaded row is due, and at the attempts that its message names."""
        if parked.attempt is not None and parked.attempt != row.attempts:
            return False
        if 0 < row.due_in <= NEARLY_DUE_SECONDS:
            self.parking.put_until(parked, now + row.due_in)
        return row.due_in <= 0

    def _reject(self, failures: Sequence[tuple[str, int | None, str, str]]) -> None:
        count = self._writes.run(deliveries.reject, failures)
        metrics.UNRENDERABLE.labels(self.key.channel.value).inc(count)
        log.info("deliveries_unrenderable", lane=str(self.key), count=count)

    def close(self) -> None:
        """Stop the threads of this lane at their next step; calls in flight go on."""
        self.stopped.set()
        self.parking.close()
        self.ready.close()
        self.granted.close()
        self.window.close()

    def hand_back(self) -> None:
        """Give everything that waits unclaimed back to the table at once; called when the threads have ended."""
        granted = self.granted.take(len(self.granted))
        self.window.release(len(granted))
        work = [*self.ready.take(len(self.ready)), *granted]
        for start in range(0, len(work), 1000):
            pairs = [(item.id, item.attempts) for item in work[start : start + 1000]]
            self.defer(pairs, 0.0, 0.0, "shutdown")
        parked = self.parking.drain()
        for start in range(0, len(parked), 1000):
            self.defer_parked(parked[start : start + 1000], 0.0, 0.0, "shutdown")
