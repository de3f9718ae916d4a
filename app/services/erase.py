"""Erasing a user: the request removes the record and leaves a job; upkeep does the job, chunk by chunk.

Invariants: what has not begun is CANCELLED before its content goes, so that no later reader of a row
finds it empty. Every accepted delivery stays in its state and its hour: the ledger
counts rows, not persons. The job ends only after a pass that began long enough after the request to see whatever
was being accepted then, and that found nothing in flight.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.engine import Engine

from app.db import erasures
from app.db.erasures import ErasureRow, Job
from app.db.requests import RequestPool
from app.domain.callers import Caller
from app.domain.ids import first_id_at, mint
from app.domain.instants import instant
from app.observability import metrics
from app.observability.logging import get_logger
from app.sealing import Vault
from app.services.refusal import NotFound
from app.services.user_changes import ERASED_PREFIX

CHUNK = 500
_BUDGET_SECONDS = 5.0
_CLOCKS_APART = timedelta(seconds=2)
"""How far the clock of a machine that mints ids may be ahead of the database's."""
_SETTLED_SECONDS = 10.0
"""Whatever was being accepted at the request has been committed or given up by then."""
_log = get_logger(__name__)


class RequestErasure:
    """The request's half: repeated, it lets the job that runs begin again."""

    def __init__(self, pool: RequestPool) -> None:
        self._pool = pool

    def begin(self, caller: Caller, user_id: str) -> dict[str, Any]:
        """Remove the user's record and devices, and return the job that erases the rest.

        It is there for a user who has no record too: something may have been sent to explicit recipients.
        """
        identifier = str(mint()[0])
        row = self._pool.run(lambda cursor: erasures.begin(cursor, caller.tenant_id, user_id, identifier))
        _log.info("erasure_requested", tenant_id=caller.tenant_id, erasure_id=row.id, by=caller.subject)
        return _view(row)

    def read(self, caller: Caller, identifier: str) -> dict[str, Any]:
        """Return a job of the caller's tenant; raise NotFound."""
        row = self._pool.run(lambda cursor: erasures.find(cursor, caller.tenant_id, identifier))
        if row is None:
            raise NotFound("DOMAIN_ERASURE_NOT_FOUND", "There is no such erasure.")
        return _view(row)


@dataclass(frozen=True)
class Erase:
    """Upkeep's half. `settled_seconds` after the request nothing of before can still appear."""

    engine: Engine
    vault: Vault
    settled_seconds: float = _SETTLED_SECONDS
    chunk: int = CHUNK
    budget_seconds: float = _BUDGET_SECONDS
    clock: Callable[[], float] = time.monotonic

    def run_once(self) -> int:
        """Do chunks of whatever jobs wait, for some seconds at most; return how many notifications were erased."""
        until = self.clock() + self.budget_seconds
        total = 0
        while (done := self.step()) is not None:
            total += done
            if self.clock() >= until:
                break
        return total

    def step(self) -> int | None:
        """Do one chunk of one job, in one transaction; None when no job is due."""
        with self.engine.begin() as connection:
            job = erasures.take(connection)
            if job is None:
                return None
            pseudonym = pseudonym_of(self.vault, job.tenant_id, job.user_id)
            below = str(first_id_at(job.requested_at + _CLOCKS_APART))
            ids = erasures.chunk(connection, job, below, self.chunk)
            if ids:
                erased = erasures.erase(connection, ids, pseudonym)
                erasures.progress(connection, job, ids[-1], erased, len(ids) - erased.busy)
                cancelled = erased.cancelled
            else:
                self._end_pass(job, connection, pseudonym)
                cancelled = 0
        metrics.CANCELLED.inc(cancelled)
        return len(ids)

    def _end_pass(self, job: Job, connection: Any, pseudonym: str) -> None:
        if job.has_left or job.waited_seconds < self.settled_seconds:
            erasures.again(connection, job, self.settled_seconds)
            return
        erasures.finish(connection, job, pseudonym)
        _log.info("erasure_done", tenant_id=job.tenant_id, erasure_id=job.id)


def pseudonym_of(vault: Vault, tenant_id: str, user_id: str) -> str:
    """Return what stands in the place of an erased user's id: the same for all of their rows, and no way back."""
    return ERASED_PREFIX + vault.index(tenant_id, "erased", user_id).hex()


def _view(row: ErasureRow) -> dict[str, Any]:
    return asdict(row) | {
        "requested_at": instant(row.requested_at),
        "finished_at": None if row.finished_at is None else instant(row.finished_at),
    }
