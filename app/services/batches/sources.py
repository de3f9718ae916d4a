"""Where the next recipients of a batch come from: a segment of the users, or a list that was sent to us.

A source reads from the place that the batch keeps and says where the next one goes on; it changes nothing. A row
of a list that is none is told as rejected, with its number, and the rest goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.db import batch_work, segments
from app.db.batch_work import Rejected, Work
from app.db.requests import Cursor
from app.domain import row_files
from app.domain.batches import Reason
from app.domain.row_files import BadRowError
from app.sealing import Vault, context

PART_BYTES = 65_536
"""A list is sealed in parts of this length, so that a chunk opens what it reads and little more."""
_PARTS = 8
ERROR_LIMIT = 100_000
"""Rejected rows that are kept of a batch; those beyond are counted only."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """One row: who, and what it adds to the batch. `row` is its number in the list, from 1; 0 in a segment."""

    user_id: str
    row: int = 0
    recipients: Mapping[str, str] = field(default_factory=dict)
    payload: Mapping[str, Any] = field(default_factory=dict)
    locale: str | None = None


@dataclass(slots=True)
class Portion:
    """The next recipients of a batch, and the place behind them."""

    after_user: str
    read_offset: int
    columns: list[str] | None
    recipients: list[Recipient] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    is_last: bool = False


class UnreadableListError(Exception):
    """The list cannot be read at all; `code` is the reason."""

    def __init__(self, code: Reason) -> None:
        super().__init__(code)
        self.code = code


def span(work: Work) -> segments.Span:
    """Return which users a batch over a segment is for, and from where to go on."""
    return segments.Span(
        work.tenant_id, work.segment or {}, work.created_at, work.after_user, work.last_user or ""
    )


def of_segment(cursor: Cursor, work: Work, limit: int) -> Portion:
    """Return the next users of a segment; few or none of them where hardly anybody fits."""
    found = segments.members(cursor, span(work), limit)
    portion = Portion(found.after or work.after_user, work.read_offset, None, is_last=found.after is None)
    portion.recipients = [Recipient(user_id) for user_id in found.ids]
    return portion


def of_list(cursor: Cursor, vault: Vault, work: Work, limit: int) -> Portion:
    """Return the next rows of a list, read and checked; raise UnreadableListError when it names no columns."""
    portion = Portion(work.after_user, work.read_offset, work.upload_columns)
    is_csv = work.upload_format == "csv"
    data, start = b"", work.read_offset
    number = work.read_count
    while len(portion.recipients) + len(portion.rejected) < limit and not portion.is_last:
        data += _next_bytes(cursor, vault, work, start + len(data))
        is_end = start + len(data) >= work.upload_length
        for raw in row_files.split(data, start, is_csv=is_csv, is_last=is_end):
            if is_csv and portion.columns is None:
                portion.columns = _columns(raw.data)
            else:
                number += 1
                _take_row(portion, raw, number)
            portion.read_offset = raw.end
            if len(portion.recipients) + len(portion.rejected) >= limit:
                break
        else:
            portion.is_last = is_end
        data, start = data[portion.read_offset - start :], portion.read_offset
    if is_csv and portion.columns is None:
        raise UnreadableListError(Reason.NO_HEADER)
    return portion


def _next_bytes(cursor: Cursor, vault: Vault, work: Work, offset: int) -> bytes:
    """Return what comes at `offset` of the list, some parts of it; empty at its end."""
    found = batch_work.pieces(cursor, work, offset, PART_BYTES, _PARTS)
    opened = [
        (start, vault.open(context("batch-piece", work.tenant_id, work.id, str(start)), sealed))
        for start, sealed in found
    ]
    if not opened:
        if offset < work.upload_length:
            raise UnreadableListError(Reason.INCOMPLETE)
        return b""
    return b"".join(data for _, data in opened)[offset - opened[0][0] :]


def _columns(row: bytes) -> list[str]:
    try:
        return row_files.header(row)
    except BadRowError as error:
        raise UnreadableListError(Reason.NO_HEADER) from error


def _take_row(portion: Portion, raw: row_files.RawRow, number: int) -> None:
    try:
        columns = portion.columns
        whole = raw.whole()
        found = row_files.of_ndjson(whole) if columns is None else row_files.of_csv(columns, whole)
        row_files.check(found)
    except BadRowError as error:
        portion.rejected.append(Rejected(number, error.user_id, error.code, str(error)))
        return
    given = {name: text for name, text in (found.get("recipients") or {}).items() if text}
    portion.recipients.append(
        Recipient(str(found["user_id"]), number, given, found.get("payload") or {}, found.get("locale"))
    )


def as_parts(vault: Vault, tenant_id: str, batch_id: str, start: int, data: bytes) -> dict[str, Sequence[Any]]:
    """Return a piece of a list in sealed parts, as the statements that store it take them."""
    starts = list(range(start, start + len(data), PART_BYTES))
    cut = [data[at - start : at - start + PART_BYTES] for at in starts]
    return {
        "starts": starts,
        "lengths": [len(part) for part in cut],
        "parts": [
            vault.seal(context("batch-piece", tenant_id, batch_id, str(at)), part)
            for at, part in zip(starts, cut, strict=True)
        ],
    }
