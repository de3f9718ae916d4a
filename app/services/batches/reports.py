"""Who got a batch and who did not: pages of lines for scripts, NDJSON or, of the rejected rows, CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from app.db import batch_reports, batches
from app.db.batch_reports import ChunkRange, ErrorRow, Place
from app.db.requests import Cursor, RequestPool
from app.domain.batches import GROUPS
from app.domain.callers import Caller
from app.domain.csv_cells import guarded
from app.domain.instants import instant
from app.services.batches.manage import not_found
from app.services.cursors import Cursors

SUPPRESSED = "suppressed"
STATES = (*GROUPS, SUPPRESSED)
_NO_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines, and where the next ones begin; None when there are no more."""

    rows: Sequence[Mapping[str, Any]]
    next_cursor: str | None

    def ndjson(self) -> bytes:
        """Return an object a line."""
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self.rows)

    def csv(self, columns: Sequence[str], *, with_header: bool) -> bytes:
        """Return RFC 4180 whose cells no spreadsheet takes for formulas (`app.domain.csv_cells`)."""
        out = io.StringIO(newline="")
        writer = csv.writer(out)
        if with_header:
            writer.writerow(columns)
        for row in self.rows:
            writer.writerow([guarded("" if row[name] is None else str(row[name])) for name in columns])
        return out.getvalue().encode()


class BatchReports:
    """The use cases. A cursor of one of them is none of another, nor of another batch."""

    def __init__(self, pool: RequestPool, cursors: Cursors) -> None:
        self._pool = pool
        self._cursors = cursors

    def errors(self, caller: Caller, identifier: str, limit: int, cursor: str | None) -> Lines:
        """Return rejected rows in their order; raise NotFound, ValueError for a bad cursor."""
        scope = f"batch-errors {caller.tenant_id} {identifier}"
        after = 0 if cursor is None else int(self._cursors.read(scope, cursor))

        def look(lent: Cursor) -> list[ErrorRow]:
            self._exists(lent, caller, identifier)
            return batch_reports.errors(lent, caller.tenant_id, identifier, after, limit + 1)

        rows = self._pool.run(look)
        shown = rows[:limit]
        more = self._cursors.make(scope, str(shown[-1].row)) if len(rows) > limit else None
        return Lines([row._asdict() for row in shown], more)

    def recipients(self, caller: Caller, identifier: str, state: str, limit: int, cursor: str | None) -> Lines:
        """Return to whom a batch went, of those in `state` (one of STATES); raise NotFound, ValueError.

        A page may be short, or empty, without being the last: it looks at a bounded part of the batch.
        """
        scope = f"batch-recipients {caller.tenant_id} {identifier} {state}"
        number, after = 1, _NO_ID
        if cursor is not None:
            first, _, after = self._cursors.read(scope, cursor).partition(" ")
            number = int(first)

        def look(lent: Cursor) -> tuple[list[dict[str, Any]], str | None]:
            self._exists(lent, caller, identifier)
            return _walk(lent, Place(caller.tenant_id, identifier, number, after), state, limit)

        rows, place = self._pool.run(look)
        return Lines(rows, None if place is None else self._cursors.make(scope, place))

    def _exists(self, cursor: Cursor, caller: Caller, identifier: str) -> None:
        if batches.find(cursor, caller.tenant_id, identifier) is None:
            raise not_found()


def _walk(cursor: Cursor, place: Place, state: str, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """Return lines from a place on, and where to go on as text."""
    found: list[dict[str, Any]] = []
    chunks = batch_reports.ranges(cursor, place.tenant_id, place.batch_id, place.number)
    for chunk in chunks:
        found += _of_chunk(cursor, place, state, chunk, limit - len(found))
        place = replace(place, after=_NO_ID)
        if len(found) >= limit:
            return found, f"{chunk.number} {found[-1]['id']}"
    if len(chunks) < batch_reports.CHUNKS_LOOKED_AT:
        return found, None
    return found, f"{chunks[-1].number + 1} {_NO_ID}"


def _of_chunk(cursor: Cursor, place: Place, state: str, chunk: ChunkRange, limit: int) -> list[dict[str, Any]]:
    if state == SUPPRESSED:
        return [
            {"id": row.id, "notification_id": row.id, "user_id": row.user_id, "suppressed": row.suppressed}
            for row in batch_reports.withheld(cursor, place, chunk, limit)
        ]
    states = [status.value for status in GROUPS[state]]
    return [
        row._asdict()
        | {
            "sent_at": instant(row.sent_at) if row.sent_at else None,
            "delivered_at": instant(row.delivered_at) if row.delivered_at else None,
        }
        for row in batch_reports.reached(cursor, place, chunk, states, limit)
    ]
