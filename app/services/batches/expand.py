"""The expander: whatever is next to be done for any batch, one short transaction at a time.

Invariants: a step is one transaction that begins by locking the batch whose turn it is, so any number of expanders
may run, and one that is killed leaves nothing half done. A step ends within about a tenth of a second, so whoever
wants to pause or cancel a batch waits that long at most. Batches and tenants take turns by the chunk.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf

import orjson
from sqlalchemy.engine import Engine

from app.db import batch_upkeep, batch_work, segments
from app.db.batch_work import Work
from app.db.requests import Cursor
from app.domain.batches import BatchState, Canary, CanaryState, Reason
from app.domain.kinds import Priority
from app.observability import metrics
from app.observability.logging import get_logger
from app.sealing import Vault
from app.services.arrivals import Arrivals
from app.services.batches import sources
from app.services.batches.ahead import Ahead, Read
from app.services.batches.canary import Verdict, judge
from app.services.batches.chunks import Chunks, Written
from app.services.batches.sources import Portion, UnreadableListError

CHUNK = 1000
_CANCEL_CHUNKS = 4
_COUNT_EVERY_SECONDS = 1.0
_COUNT_BUSY, _COUNT_IDLE = 10, 100
_LEAST_WAIT_SECONDS = 1.0
_log = get_logger(__name__)


@dataclass(slots=True)
class _After:
    """What is to be done once the step is committed."""

    work: Work | None = None
    due: list[int] = field(default_factory=list)
    to_measure: bool = False
    written: Written | None = None
    around: ExitStack = field(default_factory=ExitStack)


@dataclass
class Expand:
    """The use case. `nudge` wakes the relay; `chunk` is how many recipients one transaction takes."""

    engine: Engine
    vault: Vault
    nudge: Callable[[Priority], None]
    chunks: Chunks
    arrivals: Arrivals
    running_limit: int
    chunk: int = CHUNK
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._ahead = Ahead(self.engine, self.chunks, self.clock)
        self._counted_at = -inf

    def run(self, budget_seconds: float) -> bool:
        """Do steps for some seconds; tell whether there is more to do now. An outage ends the run."""
        until = self.clock() + budget_seconds
        try:
            while self.clock() < until:
                if not self.step():
                    self._count(_COUNT_IDLE)
                    return False
                if self.clock() - self._counted_at >= _COUNT_EVERY_SECONDS:
                    self._count(_COUNT_BUSY)
        except batch_work.OUTAGES as error:
            _log.warning("batch_waits_for_database", error=type(error).__name__)
            return False
        return True

    def step(self) -> bool:
        """Do the next thing for the batch whose turn it is; False when there is nothing to do now."""
        after = _After()
        try:
            began = time.perf_counter()
            # What is entered in the step stays around its commit: the counts of inboxes that it fills.
            with after.around, self.engine.begin() as connection:
                cursor = batch_work.cursor_of(connection)
                after.work = batch_work.take(cursor, self.running_limit)
                if after.work is None:
                    return False
                self._advance(cursor, after.work, after)
            if after.to_measure:
                self._measure(after.work)
        except batch_work.OUTAGES:
            raise
        except Exception:
            if after.work is None:
                raise
            _log.exception("batch_step_failed", tenant_id=after.work.tenant_id, batch_id=after.work.id)
            with self.engine.begin() as connection:
                batch_work.set_aside(batch_work.cursor_of(connection), after.work)
            return True
        if after.written is not None:
            self._tell(after.work, after.written, time.perf_counter() - began)
            if after.due:
                for user_id, identifier in after.written.arrived:
                    self.arrivals.tell(after.work.tenant_id, user_id, identifier)
        for number in after.due:
            self.nudge(Priority(number))
        return True

    def _advance(self, cursor: Cursor, work: Work, after: _After) -> None:
        match BatchState(work.state):
            case BatchState.ACCEPTED:
                batch_work.promote(cursor, work, self.running_limit)
            case BatchState.CANARY_WAIT:
                self._judge(cursor, work)
            case BatchState.CANCELLING:
                self._cancel(cursor, work)
            case _ if work.seconds_left is not None and work.seconds_left <= 0:
                self._end(cursor, work, Portion(work.after_user, work.read_offset, work.upload_columns), Written())
            case _ if work.segment is not None and work.last_user is None:
                after.to_measure = True
            case _:
                self._expand(cursor, work, after)

    def _measure(self, work: Work) -> None:
        """Count a segment without holding its batch: it may take seconds, and nothing is written before."""
        with self.engine.begin() as connection:
            total, last_user = segments.measure(batch_work.cursor_of(connection), sources.span(work))
        with self.engine.begin() as connection:
            batch_work.measured(batch_work.cursor_of(connection), work, total, last_user)

    def _expand(self, cursor: Cursor, work: Work, after: _After) -> None:
        canary = canary_of(work)
        left = self.chunk
        if canary is not None and work.canary_state == CanaryState.AHEAD:
            left = min(left, max(canary.size(work.total) - work.read_count, 1))
        try:
            read = self._read(cursor, work, left)
        except UnreadableListError as error:
            batch_work.settle(cursor, work, BatchState.FAILED, error.code)
            return
        portion = read.portion
        if work.segment is not None and left == self.chunk:
            self._ahead.begin(work, portion, left)
        inboxes = [
            (work.tenant_id, asked.submission.user_id) for asked, made, _ in read.planned if made.is_for_inbox
        ]
        after.around.enter_context(self.arrivals.expected(inboxes))
        written = self.chunks.write(cursor, work, portion, read.planned)
        self._end(cursor, work, portion, written)
        if work.segment is None:
            batch_work.drop_read(cursor, work, work.upload_length if portion.is_last else portion.read_offset)
        after.written, after.due = written, written.due

    def _read(self, cursor: Cursor, work: Work, limit: int) -> Read:
        if work.segment is None:
            portion = sources.of_list(cursor, self.vault, work, limit)
        elif (read := self._ahead.take(work, limit)) is not None:
            return read
        else:
            portion = sources.of_segment(cursor, work, limit)
        return Read(portion, self.chunks.planned(cursor, work, portion.recipients, portion.rejected))

    def _end(self, cursor: Cursor, work: Work, portion: Portion, written: Written) -> None:
        """Move the batch behind a portion, and into the state that follows from it."""
        state, reason, canary_state = BatchState.RUNNING, None, CanaryState(work.canary_state)
        canary = canary_of(work)
        read = work.read_count + written.made + len(written.rejected)
        if work.seconds_left is not None and work.seconds_left <= 0:
            state, reason = BatchState.FAILED, Reason.DEADLINE_PASSED
        elif portion.is_last:
            state = BatchState.COMPLETED
        elif canary is not None and canary_state is CanaryState.AHEAD and read >= canary.size(work.total):
            state, canary_state = BatchState.CANARY_WAIT, CanaryState.WAITING
        batch_work.advance(
            cursor,
            work,
            {
                "state": state,
                "reason": reason,
                "made": written.made,
                "rejected": len(written.rejected),
                "deliveries": written.deliveries,
                "suppressed": _sum(work.suppressed, written.suppressed),
                "chunk_count": work.chunk_count + (written.made > 0),
                "last_millisecond": max(written.millisecond, work.last_millisecond),
                "after_user": portion.after_user,
                "read_offset": portion.read_offset,
                "columns": portion.columns,
                "canary_state": canary_state,
                "canary_seconds": canary.wait_seconds if canary is not None else 0,
            },
        )
        if state is not BatchState.RUNNING:
            _log.info("batch_moved", tenant_id=work.tenant_id, batch_id=work.id, state=state.value, read=read)

    def _judge(self, cursor: Cursor, work: Work) -> None:
        canary = canary_of(work)
        if canary is None:
            batch_work.settle(cursor, work, BatchState.RUNNING, None)
            return
        states: Counter[str] = Counter()
        for chunk in batch_work.chunks(cursor, work):
            states.update(batch_work.count(cursor, work.id, chunk))
        judgement = judge(canary, states, batch_work.out_for(cursor, work))
        _log.info(
            "batch_canary_judged",
            tenant_id=work.tenant_id,
            batch_id=work.id,
            verdict=judgement.verdict.name,
            failure_rate=judgement.failure_rate,
        )
        match judgement.verdict:
            case Verdict.GO_ON:
                batch_work.settle(cursor, work, BatchState.RUNNING, None, canary_state=CanaryState.PASSED)
            case Verdict.WAIT:
                wait = max(canary.wait_seconds, _LEAST_WAIT_SECONDS)
                batch_work.settle(cursor, work, BatchState.CANARY_WAIT, None, wait_seconds=wait)
            case Verdict.FAILED:
                batch_work.settle(
                    cursor, work, BatchState.PAUSED, Reason.CANARY_FAILED, canary_state=CanaryState.STOPPED
                )
            case Verdict.UNDECIDED:
                batch_work.settle(
                    cursor, work, BatchState.PAUSED, Reason.CANARY_UNDECIDED, canary_state=CanaryState.STOPPED
                )

    def _cancel(self, cursor: Cursor, work: Work) -> None:
        chunks = batch_work.uncancelled(cursor, work, _CANCEL_CHUNKS)
        cancelled = sum(batch_work.cancel_chunk(cursor, work, chunk) for chunk in chunks)
        if cancelled:
            metrics.CANCELLED.inc(cancelled)
        if len(chunks) < _CANCEL_CHUNKS:
            batch_work.settle(cursor, work, BatchState.CANCELLED, None)
            _log.info("batch_moved", tenant_id=work.tenant_id, batch_id=work.id, state="CANCELLED")

    def _count(self, limit: int) -> None:
        """Count chunks again whose numbers are old, so that progress costs its reader nothing."""
        with self.engine.begin() as connection:
            batch_upkeep.recount(batch_work.cursor_of(connection), limit)
        self._counted_at = self.clock()

    def _tell(self, work: Work, written: Written, seconds: float) -> None:
        metrics.BATCH_EXPANDED.inc(written.made)
        metrics.BATCH_REJECTED.inc(len(written.rejected))
        metrics.BATCH_CHUNK_SECONDS.observe(seconds)
        for channel, count in written.by_channel.items():
            metrics.ACCEPTED.labels(channel, Priority(work.priority).name).inc(count)


def canary_of(work: Work) -> Canary | None:
    """Return the trial of a batch, if it has one."""
    return None if work.canary is None else Canary(**work.canary)


def _sum(before: dict[str, int], more: Counter[str]) -> str:
    return orjson.dumps(Counter(before) + more).decode()
