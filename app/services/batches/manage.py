"""A batch from the side of whoever sent it: how far it is, pause, resume, cancel, recall.

To cancel stops the expansion at once and takes back what has not been sent; to recall does the same for a batch
that has ended already. What is being sent at that moment may still arrive, and is told as sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.db import batches
from app.db.batches import BatchRow
from app.db.requests import Cursor, RequestPool
from app.domain.batches import GROUPS, BatchState, Reason, Source
from app.domain.callers import Caller
from app.domain.instants import instant
from app.domain.kinds import Priority
from app.observability.logging import get_logger
from app.services.cursors import Cursors
from app.services.refusal import NotFound, Refused

_LIST = "batches"
_B = BatchState
_CANCELLABLE = (_B.UPLOADING, _B.ACCEPTED, _B.RUNNING, _B.PAUSED, _B.CANARY_WAIT)
_RECALLABLE = (*_CANCELLABLE, _B.COMPLETED, _B.FAILED)
_CALLED_OFF = frozenset({_B.CANCELLING, _B.CANCELLED})
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """Some batches, newest first, and where the next page begins."""

    rows: Sequence[BatchRow]
    next_cursor: str | None


class ManageBatches:
    """The use cases. `wake` wakes the expander and never raises."""

    def __init__(self, pool: RequestPool, cursors: Cursors, wake: Callable[[], None]) -> None:
        self._pool = pool
        self._cursors = cursors
        self._wake = wake

    def read(self, caller: Caller, identifier: str) -> BatchRow:
        """Return a batch of the caller's tenant; raise NotFound."""
        row = self._pool.run(lambda cursor: batches.find(cursor, caller.tenant_id, identifier))
        if row is None:
            raise not_found()
        return row

    def page(self, caller: Caller, limit: int, cursor: str | None = None) -> Page:
        """Return `limit` batches of the caller's tenant; raise ValueError for a bad cursor."""
        scope = f"{_LIST} {caller.tenant_id}"
        before = None if cursor is None else self._cursors.read(scope, cursor)
        rows = self._pool.run(lambda lent: batches.page(lent, caller.tenant_id, before, limit + 1))
        shown = rows[:limit]
        return Page(shown, self._cursors.make(scope, shown[-1].id) if len(rows) > limit else None)

    def pause(self, caller: Caller, identifier: str) -> BatchRow:
        """Make no more notifications of a batch; again is harmless. Raises NotFound and Refused."""
        return self._change(caller, identifier, "paused", batches.pause, lambda row: row.state == _B.PAUSED)

    def resume(self, caller: Caller, identifier: str) -> BatchRow:
        """Go on with a paused batch; again is harmless. Raises NotFound and Refused."""
        going = {_B.ACCEPTED, _B.RUNNING, _B.CANARY_WAIT, _B.COMPLETED}
        return self._change(caller, identifier, "resumed", batches.resume, lambda row: row.state in going)

    def cancel(self, caller: Caller, identifier: str) -> BatchRow:
        """Call off a batch that has not ended; again is harmless. Raises NotFound and Refused."""
        return self._call_off(caller, identifier, _CANCELLABLE, Reason.USER)

    def recall(self, caller: Caller, identifier: str) -> BatchRow:
        """Call off a batch whether it has ended or not; again is harmless. Raises NotFound."""
        return self._call_off(caller, identifier, _RECALLABLE, Reason.RECALLED)

    def _call_off(self, caller: Caller, identifier: str, states: Sequence[str], reason: Reason) -> BatchRow:
        def change(cursor: Cursor, tenant_id: str, batch_id: str) -> bool:
            return batches.cancel(cursor, tenant_id, batch_id, [str(state) for state in states], reason)

        return self._change(caller, identifier, reason, change, lambda row: row.state in _CALLED_OFF)

    def _change(
        self,
        caller: Caller,
        identifier: str,
        what: str,
        change: Callable[[Cursor, str, str], bool],
        is_so: Callable[[BatchRow], bool],
    ) -> BatchRow:
        def run(cursor: Cursor) -> tuple[bool, BatchRow | None]:
            return change(cursor, caller.tenant_id, identifier), batches.find(cursor, caller.tenant_id, identifier)

        has_changed, row = self._pool.run(run)
        if row is None:
            raise not_found()
        if has_changed:
            _log.info(
                "batch_changed", tenant_id=caller.tenant_id, batch_id=row.id, by=caller.subject, what=str(what)
            )
            self._wake()
        elif not is_so(row):
            raise Refused("DOMAIN_BATCH_STATE", f"The batch is {row.state}; that cannot be done with it now.")
        return row


def not_found() -> NotFound:
    """Return what is raised for a batch that the tenant does not have."""
    return NotFound("DOMAIN_BATCH_NOT_FOUND", "There is no such batch.")


def view(row: BatchRow) -> dict[str, Any]:
    """Return a batch as the API shows it."""
    rate = _rate(row)
    left = None if row.total is None else max(row.total - row.read_count, 0)
    return {
        "id": row.id,
        "state": row.state,
        "reason": row.reason,
        "source": row.source,
        "category": row.category,
        "priority": Priority(row.priority).name,
        "channels": row.channels,
        "metadata": row.metadata,
        "segment": row.segment,
        "canary": None if row.canary is None else {**row.canary, "state": row.canary_state},
        "scheduled_at": _instant(row.scheduled_at),
        "expires_at": _instant(row.expires_at),
        "upload": _upload(row),
        "progress": {
            "total": row.total,
            "read": row.read_count,
            "notifications": row.made_count,
            "rejected": row.rejected_count,
            "suppressed": row.suppressed,
            "rows_per_second": rate,
            "seconds_left": round(left / rate) if rate and left is not None and row.state == _B.RUNNING else None,
        },
        "deliveries": {
            "total": row.delivery_count,
            **{name: sum(row.states.get(state, 0) for state in states) for name, states in GROUPS.items()},
            "counted_at": _instant(row.counted_at),
        },
        "created_by": row.created_by,
        "created_at": instant(row.created_at),
        "started_at": _instant(row.started_at),
        "ended_at": _instant(row.ended_at),
    }


def _upload(row: BatchRow) -> dict[str, Any] | None:
    if row.source != Source.UPLOAD:
        return None
    return {"format": row.upload_format, "next_offset": row.upload_length}


def _rate(row: BatchRow) -> float | None:
    """Return rows a second since the batch began; pauses count."""
    if row.started_at is None or row.read_count == 0:
        return None
    until = row.expanded_at or row.ended_at or row.looked_at
    return round(row.read_count / max((until - row.started_at).total_seconds(), 0.001), 1)


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else instant(moment)
