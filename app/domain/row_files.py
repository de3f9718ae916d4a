"""Lists of recipients as CSV or NDJSON, read in steps: the next rows, and where the step after them begins.

Nothing is kept between two steps but a byte offset, so whoever was killed is followed by another one that begins
at the same row. A row ends at a line break outside quotes; the quotes of a line are counted, which is exact for
what RFC 4180 allows. What cannot be read is a bad row and not the end of the list.

The first line of a CSV names its columns: `user_id`, `recipients.EMAIL`, `recipients.SMS`, `recipients.PUSH`,
`locale`; any other one is a value of the payload. A cell is text; an empty one is left out.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.csv_cells import plain

ROW_LIMIT_BYTES = 65_536
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_USER = "user_id"
_RECIPIENT = "recipients."
_LOCALE = "locale"
_OBJECTS = frozenset({"recipients", "payload"})


class BadRowError(ValueError):
    """A row that cannot be read. `code` is stable, the message is for people and holds nothing of the row."""

    def __init__(self, code: str, message: str, user_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.user_id = user_id


@dataclass(frozen=True, slots=True)
class RawRow:
    """The bytes of a row without its line break, and the offset behind it; `is_whole` unless it is too long."""

    data: bytes
    end: int
    is_whole: bool = True

    def whole(self) -> bytes:
        """Return the row; raise BadRowError when it is too long."""
        if not self.is_whole:
            raise BadRowError("too_long", f"is longer than {ROW_LIMIT_BYTES} bytes, or a quote stays open")
        return self.data


def split(data: bytes, offset: int, *, is_csv: bool, is_last: bool) -> Iterator[RawRow]:
    """Yield the rows that are complete in `data`, which begins at `offset` of the list, at the start of a row.

    Without `is_last`, bytes behind the last line break may be the beginning of a row and are left for later.
    A quote that is never closed takes at most ROW_LIMIT_BYTES; reading goes on behind its first line.
    """
    at = 0
    while at < len(data):
        end, is_whole = _row_end(data, at, is_csv=is_csv, is_last=is_last)
        if end is None:
            return
        row = data[at:end].rstrip(b"\r\n")
        if row.strip():
            yield RawRow(row if is_whole else b"", offset + end, is_whole)
        at = end


def _row_end(data: bytes, at: int, *, is_csv: bool, is_last: bool) -> tuple[int | None, bool]:
    end, quotes, first_end = at, 0, None
    while True:
        line_break = data.find(b"\n", end)
        if line_break < 0:
            rest = len(data) - at
            if rest > ROW_LIMIT_BYTES or is_last:
                is_whole = rest <= ROW_LIMIT_BYTES and (not is_csv or (quotes + data.count(b'"', end)) % 2 == 0)
                return (len(data) if is_whole or first_end is None else first_end), is_whole
            return None, True
        quotes += data.count(b'"', end, line_break) if is_csv else 0
        end = line_break + 1
        first_end = first_end or end
        if end - at > ROW_LIMIT_BYTES:
            return first_end, False
        if quotes % 2 == 0:
            return end, True


def header(row: bytes) -> list[str]:
    """Return the columns that the first row of a CSV names; raise BadRowError when none can be `user_id`."""
    names = [plain(name).strip() for name in _cells(row.removeprefix(BYTE_ORDER_MARK))]
    if _USER not in names or len(set(names)) != len(names) or not all(names):
        raise BadRowError("no_header", "the first line must name each column once, user_id among them")
    return names


def of_csv(columns: list[str], row: bytes) -> dict[str, Any]:
    """Return a row of a CSV as an object like those of NDJSON; raise BadRowError."""
    cells = [plain(cell) for cell in _cells(row)]
    if len(cells) != len(columns):
        raise BadRowError("columns", f"has {len(cells)} cells under {len(columns)} columns")
    found: dict[str, Any] = {}
    for name, cell in zip(columns, cells, strict=True):
        if not cell:
            continue
        if name in {_USER, _LOCALE}:
            found[name] = cell
        elif name.startswith(_RECIPIENT):
            found.setdefault("recipients", {})[name.removeprefix(_RECIPIENT)] = cell
        else:
            found.setdefault("payload", {})[name] = cell
    return found


def of_ndjson(row: bytes) -> dict[str, Any]:
    """Return a row of NDJSON; raise BadRowError."""
    text = _text(row.removeprefix(BYTE_ORDER_MARK))
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadRowError("unreadable", "is not an object in JSON") from error
    if not isinstance(found, dict):
        raise BadRowError("unreadable", "is not an object in JSON")
    return found


def check(row: Mapping[str, Any]) -> None:
    """Raise BadRowError for a row that does not have the shape of a recipient."""
    user_id = row.get(_USER)
    if isinstance(user_id, bool) or not isinstance(user_id, str | int) or not 0 < len(str(user_id)) <= 255:  # noqa: PLR2004
        raise BadRowError("user_id", "needs a user_id of 1 to 255 characters")
    named = str(user_id)
    if not named.isprintable() or not named.strip():
        raise BadRowError("user_id", "user_id must be visible text")
    unknown = set(row) - {_USER, _LOCALE, *_OBJECTS}
    if unknown:
        raise BadRowError("unknown_field", "has a field that is not user_id, recipients, payload or locale", named)
    for name in _OBJECTS & row.keys():
        if row[name] is not None and not isinstance(row[name], dict):
            raise BadRowError(name, f"{name} must be an object", named)
    if not all(value is None or isinstance(value, str) for value in (row.get("recipients") or {}).values()):
        raise BadRowError("recipients", "a recipient must be text", named)
    if not isinstance(row.get(_LOCALE), str | None):
        raise BadRowError(_LOCALE, "locale must be text", named)
    if "\\u0000" in json.dumps(row):
        raise BadRowError("text", "contains a NUL character", named)


def _no_number(name: str) -> float:
    raise ValueError(name)


def _text(row: bytes) -> str:
    try:
        return row.decode()
    except UnicodeDecodeError as error:
        raise BadRowError("encoding", "is not UTF-8") from error


def _cells(row: bytes) -> list[str]:
    text = _text(row)
    try:
        # A reader takes each line break, inside quotes too, as it stands.
        return next(csv.reader(io.StringIO(text, newline="") if "\n" in text else [text], strict=True), [])
    except csv.Error as error:
        raise BadRowError("unreadable", "is not CSV as RFC 4180 has it") from error
