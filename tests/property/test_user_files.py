"""Files of users: what was written is read, whatever the cells hold, and no bytes break the reading."""

import csv
import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.user_files import LINE_LIMIT_BYTES, Row, UnreadableFileError, UserFile

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=30)


def read(raw: bytes, *, is_csv: bool = True, **named: Any) -> list[Row]:
    return list(UserFile(io.BytesIO(raw), is_csv=is_csv, **named))


@given(st.lists(st.tuples(CELLS.filter(bool), CELLS), max_size=20), st.sampled_from(",;\t"), st.booleans())
def test_cells_of_any_text_come_back_as_they_were(
    rows: list[tuple[str, str]], delimiter: str, marked: bool
) -> None:
    """Quotes, delimiters and line breaks too, and what a spreadsheet would take for a formula."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerows([("id", "attributes.name"), *rows])
    raw = out.getvalue().encode("utf-8-sig" if marked else "utf-8")
    found = read(raw)
    assert [row.problem for row in found] == [None] * len(rows)
    assert [(row.id, (row.user or {}).get("attributes", {}).get("name", "")) for row in found] == rows


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers() | CELLS, max_size=4), max_size=10))
def test_objects_come_back_as_they_were(values: list[dict[str, Any]]) -> None:
    """A line each; blank lines are passed over."""
    raw = "\n\n".join(json.dumps(value) for value in values).encode()
    for row, value in zip(read(raw, is_csv=False), values, strict=True):
        refused = any("\0" in text for text in [*value, *map(str, value.values())]) or any(
            isinstance(each, int) and not -(2**63) <= each < 2**64 for each in value.values()
        )
        assert (row.user == value) if not refused else (row.problem is not None)


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_break_the_reading(raw: bytes, is_csv: bool) -> None:
    """Rows, rows with a reason, or one error that says where."""
    with suppress(UnreadableFileError):
        rows = read(b"id,email\n" + raw if is_csv else raw, is_csv=is_csv)
        assert all((row.user is None) == (row.problem is not None) for row in rows)


def test_what_is_no_row_is_told_and_reading_goes_on() -> None:
    """NUL, a huge cell, a huge line, too few cells, attributes that are no JSON; each with its line."""
    raw = (
        b"id,email,attributes\n1,a@x.org,\n2,b\n3,\0,\n4," + b"x" * 200_000 + b",\n5,,"
        + b"y" * (2 * LINE_LIMIT_BYTES)
        + b"\n6,,{\n7,=1+1,\n"
    )  # fmt: skip
    rows = read(raw)
    assert [(row.line, row.id, (row.problem or "")[:12]) for row in rows] == [
        (2, "1", ""), (3, None, "has 2 cells,"), (4, None, "email: conta"), (5, None, "not CSV: fie"),
        (6, None, "a line is lo"), (7, None, "attributes: "), (8, "7", ""),
    ]  # fmt: skip
    assert rows[-1].user == {"id": "7", "email": "=1+1"}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"), ("id\nü".encode("latin1"), "line 2 is not UTF-8, at byte 1"),
        ("id\n1".encode("utf-16"), "UTF-16"),
        (b"name,email\n", "'name'"), (b"email\n", "must name the column id"), (b"id,id\n", "no field twice"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_says_why(raw: bytes, says: str) -> None:
    """And what to do."""
    with pytest.raises(UnreadableFileError, match=says):
        read(raw)


def test_columns_are_taken_as_they_are_mapped() -> None:
    """One to a field, one to an attribute, one left out; a mapping of a column that is not there is an error."""
    renamed = {"Nr": "id", "Mail": "email", "Note": "", "Plan": "attributes.plan"}
    (row,) = read(b"Nr;Mail;Note;Plan\n7;a@x.org;secret;pro\n", renamed=renamed)
    assert row.user == {"id": "7", "email": "a@x.org", "attributes": {"plan": "pro"}}
    with pytest.raises(UnreadableFileError, match="Nr"):
        read(b"id\n7\n", renamed={"Nr": "id"})
