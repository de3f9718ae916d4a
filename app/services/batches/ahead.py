"""Reading ahead: while a chunk is written, the next one is read and planned by another thread.

Most of a chunk's time is PostgreSQL's, in which this process would wait. What was read ahead is only a guess: it
counts when the batch, under its lock, stands at the very place that was guessed, and a moment later at most, so
nobody is decided about by what was true long ago. Lists are not read ahead, since reading them writes.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from sqlalchemy.engine import Engine

from app.db import batch_work
from app.db.batch_work import Work
from app.observability.logging import get_logger
from app.services.batches import sources
from app.services.batches.chunks import FRESH_SECONDS, Chunks, Planned
from app.services.batches.sources import Portion

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Read:
    """Recipients that were read, and what is planned for them."""

    portion: Portion
    planned: list[Planned]


@dataclass(frozen=True, slots=True)
class _Guess:
    work: Work
    limit: int
    at: float
    read: "Future[Read]"


class Ahead:
    """Reads one chunk ahead of one batch. Belongs to one thread."""

    def __init__(self, engine: Engine, chunks: Chunks, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._chunks = chunks
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._guess: _Guess | None = None

    def begin(self, work: Work, portion: Portion, limit: int) -> None:
        """Begin to read what follows `portion`, unless it is the last one."""
        if portion.is_last:
            return
        then = replace(work, after_user=portion.after_user)
        self._guess = _Guess(then, limit, self._clock(), self._thread.submit(self._read, then, limit))

    def take(self, work: Work, limit: int) -> Read | None:
        """Return what was read ahead for this very place of the batch; None when there is nothing of use."""
        guess, self._guess = self._guess, None
        if guess is None or (guess.work.id, guess.work.after_user, guess.limit) != (
            work.id,
            work.after_user,
            limit,
        ):
            return None
        if self._clock() - guess.at > FRESH_SECONDS:
            return None
        try:
            return guess.read.result()
        except Exception as error:  # noqa: BLE001  the chunk is read again, and then says what is wrong
            _log.info("batch_not_read_ahead", batch_id=work.id, error=type(error).__name__)
            return None

    def _read(self, work: Work, limit: int) -> Read:
        with self._engine.begin() as connection:
            cursor = batch_work.cursor_of(connection)
            batch_work.go_as_tenant(cursor, work.tenant_id)
            portion = sources.of_segment(cursor, work, limit)
            return Read(portion, self._chunks.planned(cursor, work, portion.recipients, portion.rejected))
