"""Files of users: CSV and NDJSON, read line by line in constant memory, each row on its own.

Nothing here looks at what the values mean: a row becomes an object as the API's bulk takes it, with the line that
it began in. What is no row is told with its line, and reading goes on behind it; only text that is not UTF-8 ends
it, since nothing behind such a place can be trusted.

A cell that begins like a formula is text like any other. An empty cell says nothing about its field; in NDJSON
`null` clears.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

FIELDS = ("id", "status", "email", "phone", "region", "locale", "time_zone", "last_seen_at", "attributes")
ATTRIBUTE = "attributes."
LINE_LIMIT_BYTES = 1_048_576
_CELL_LIMIT = 131_072
_BOM = b"\xef\xbb\xbf"
_DELIMITERS = ",;\t"
_LONE_SURROGATES = ("\ud800", "\udfff")


class UnreadableFileError(ValueError):
    """The file cannot be read any further. The message says where and why, `advice` what to do."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file: the line that it began in, what it says, or why it cannot be used."""

    line: int
    user: Mapping[str, Any] | None
    problem: str | None = None

    @property
    def id(self) -> str | None:
        """The user that the row names, as far as that can be told."""
        named = self.user.get("id") if self.user is not None else None
        return named if isinstance(named, str) else None


class _Lines:
    """The lines of a file as text, without its byte order mark; counts lines and bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.number = 0
        self.bytes_read = 0
        self.too_long: int | None = None

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        raw = self._file.readline(LINE_LIMIT_BYTES)
        if not raw:
            raise StopIteration
        self.number += 1
        self.bytes_read += len(raw)
        if len(raw) == LINE_LIMIT_BYTES and not raw.endswith(b"\n"):
            self._skip_line()
            self.too_long = self.number
            return "\n"
        if self.number == 1:
            if raw[:2] in {b"\xff\xfe", b"\xfe\xff"}:
                raise UnreadableFileError("the file is UTF-16", "save it as UTF-8: iconv -f utf-16 -t utf-8")
            raw = raw.removeprefix(_BOM)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise UnreadableFileError(
                f"line {self.number} is not UTF-8, at byte {error.start + 1} of the line",
                "save the file as UTF-8: iconv -f latin1 -t utf-8",
            ) from error

    def _skip_line(self) -> None:
        while raw := self._file.readline(LINE_LIMIT_BYTES):
            self.bytes_read += len(raw)
            if raw.endswith(b"\n"):
                return


class UserFile:
    """The rows of a file. `renamed` maps its columns to fields; a column that is mapped to "" is passed over."""

    def __init__(
        self,
        file: BinaryIO,
        *,
        is_csv: bool,
        renamed: Mapping[str, str] | None = None,
        delimiter: str | None = None,
    ) -> None:
        self._lines = _Lines(file)
        self._is_csv = is_csv
        self._renamed = renamed or {}
        self._delimiter = delimiter

    @property
    def bytes_read(self) -> int:
        """How far the file has been read."""
        return self._lines.bytes_read

    def __iter__(self) -> Iterator[Row]:
        return self._csv() if self._is_csv else self._ndjson()

    def _csv(self) -> Iterator[Row]:
        first = next(self._lines, None)
        if first is None:
            raise UnreadableFileError("the file is empty", "its first line names the columns: id,email,…")
        delimiter = self._delimiter or max(_DELIMITERS, key=first.count)
        # A header is one line, which `csv` may not go beyond: it would take a quote that stays open to the end.
        fields = self._fields(next(csv.reader([first.rstrip("\r\n")], delimiter=delimiter), []))
        reader = csv.reader(self._lines, delimiter=delimiter, strict=True)
        csv.field_size_limit(_CELL_LIMIT)
        while True:
            line = self._lines.number + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self._lines.too_long = None
                yield Row(line, None, f"not CSV: {error}")
                continue
            if self._lines.too_long is not None:
                self._lines.too_long = None
                yield Row(line, None, f"a line is longer than {LINE_LIMIT_BYTES} bytes")
            elif cells:
                yield self._row(line, fields, cells)

    def _fields(self, columns: Sequence[str]) -> list[str]:
        """Return the field of each column; raise UnreadableFileError for a column that is none."""
        unused = set(self._renamed) - set(columns)
        if unused:
            raise UnreadableFileError(
                f"no column is called {', '.join(sorted(unused))}", f"the file's are: {', '.join(columns)}"
            )
        fields = [self._renamed.get(column, column.strip()) for column in columns]
        unknown = [
            column
            for column, field in zip(columns, fields, strict=True)
            if field and field not in FIELDS and not (field.startswith(ATTRIBUTE) and field != ATTRIBUTE)
        ]
        if unknown:
            raise UnreadableFileError(
                f"not fields of a user: {', '.join(map(repr, unknown))}",
                "map each with --map COLUMN=FIELD, or --map COLUMN= to leave it out;"
                f" fields are {', '.join(FIELDS)} and {ATTRIBUTE}NAME",
            )
        named = [field for field in fields if field]
        if "id" not in named or len(set(named)) != len(named):
            raise UnreadableFileError(
                "the first line must name the column id, and no field twice", "see arauto users import --help"
            )
        return fields

    def _row(self, line: int, fields: Sequence[str], cells: Sequence[str]) -> Row:
        if len(cells) != len(fields):
            return Row(line, None, f"has {len(cells)} cells, the first line {len(fields)}")
        user: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        for field, cell in zip(fields, cells, strict=True):
            if not field or not cell:
                continue
            if "\0" in cell:
                return Row(line, None, f"{field}: contains a NUL character")
            if field.startswith(ATTRIBUTE):
                attributes[field.removeprefix(ATTRIBUTE)] = cell
            elif field == "attributes":
                try:
                    user[field] = _strict_json(cell)
                except ValueError:
                    return Row(line, None, "attributes: not JSON")
            else:
                user[field] = cell
        if attributes:
            given = user.get("attributes", {})
            user["attributes"] = {**given, **attributes} if isinstance(given, dict) else given
        return Row(line, user)

    def _ndjson(self) -> Iterator[Row]:
        for text in self._lines:
            line = self._lines.number
            if self._lines.too_long is not None:
                self._lines.too_long = None
                yield Row(line, None, f"the line is longer than {LINE_LIMIT_BYTES} bytes")
            elif text.strip():
                yield self._object(line, text)

    def _object(self, line: int, text: str) -> Row:
        try:
            value = _strict_json(text)
        except ValueError:
            return Row(line, None, "not JSON, or with NaN, NUL or half of a surrogate pair")
        if not isinstance(value, dict):
            return Row(line, None, "not an object")
        return Row(
            line, {self._renamed.get(name, name): each for name, each in value.items() if self._keeps(name)}
        )

    def _keeps(self, name: str) -> bool:
        return self._renamed.get(name) != ""


def _strict_json(text: str) -> Any:
    """Return the value; raise ValueError for what the API takes nowhere: NaN, NUL, half a surrogate pair."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    low, high = _LONE_SURROGATES
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str):
            if any(letter == "\0" or low <= letter <= high for letter in each):
                raise ValueError("text that cannot be stored")
        elif isinstance(each, int | float) and not -(2**63) <= each < 2**64:
            raise ValueError("a number that is too large")
    return value


def _refuse(name: str) -> None:
    raise ValueError(name)
