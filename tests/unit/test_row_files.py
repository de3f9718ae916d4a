"""Lists of recipients, read in steps, and cells that are no formulas."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import row_files
from app.domain.batches import GROUPS, Canary
from app.domain.csv_cells import guarded, plain
from app.domain.row_files import ROW_LIMIT_BYTES, BadRowError, split
from app.domain.states import DeliveryState
from app.services.batches.canary import Verdict, judge

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def _all(data: bytes, piece: int, *, is_csv: bool) -> list[bytes]:
    """Read a list in pieces, as the expander does."""
    found, offset, end = [], 0, 0
    while True:
        end = min(end + piece, len(data))
        for row in split(data[offset:end], offset, is_csv=is_csv, is_last=end == len(data)):
            found.append(row.data)
            offset = row.end
        if end == len(data):
            return found


@given(st.lists(st.lists(_TEXT, min_size=2, max_size=2), min_size=1, max_size=8), st.integers(1, 30))
def test_a_csv_reads_the_same_in_pieces_of_any_size(rows, piece):
    """Whatever the cells hold: quotes, commas, line breaks, any letter.

    Fails when a quote's parity is lost between two pieces.
    """
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    read = _all(out.getvalue().encode(), piece, is_csv=True)
    again = [row_files.of_csv(["user_id", "value"], row) for row in read]
    wanted = [{"user_id": plain(a)} | ({"payload": {"value": plain(b)}} if plain(b) else {}) for a, b in rows]
    assert again == [{k: v for k, v in row.items() if v} for row in wanted]


@given(_TEXT)
def test_a_guarded_cell_comes_back_as_it_was(text):
    """Reading undoes writing, and no cell begins like a formula unless it is a phone number."""
    cell = guarded(text)
    assert plain(cell) == text
    assert not cell.startswith(("=", "-", "@", "\t", "\r"))
    assert not cell.startswith("+") or cell[1:].isdigit()


def test_a_quote_that_stays_open_takes_one_row():
    """Reading goes on behind its first line."""
    data = b'a,"open\n' + b"b,2\n" * (ROW_LIMIT_BYTES // 4 + 10)
    rows = list(split(data, 0, is_csv=True, is_last=True))
    assert not rows[0].is_whole
    assert rows[1].data == b"b,2"
    with pytest.raises(BadRowError):
        rows[0].whole()


def test_the_groups_of_states_are_all_states_once():
    """Their counts add up to all deliveries."""
    assert sorted(state for states in GROUPS.values() for state in states) == sorted(DeliveryState)


@pytest.mark.parametrize(
    ("canary", "total", "size"),
    [
        (Canary(0, 0, percent=5.0), 1000, 50),
        (Canary(0, 0, percent=5.0), 1001, 51),
        (Canary(0, 0, percent=0.1), 5, 1),
        (Canary(0, 0, percent=7.0), None, 1),
        (Canary(0, 0, count=30), 10, 30),
    ],
)
def test_the_size_of_a_canary(canary, total, size):
    """A percentage is rounded up, without the errors of binary fractions."""
    assert canary.size(total) == size


@pytest.mark.parametrize(
    ("states", "seconds", "verdict"),
    [
        ({"SENT": 95, "FAILED": 5}, 60, Verdict.GO_ON),
        ({"SENT": 94, "FAILED": 6}, 60, Verdict.FAILED),
        ({"SENT": 49, "PENDING": 51}, 60, Verdict.WAIT),
        ({"SENT": 50, "PENDING": 50}, 60, Verdict.GO_ON),
        ({"SENT": 1, "PENDING": 99}, 600, Verdict.UNDECIDED),
        ({"CANCELLED": 9, "DELIVERED": 1}, 0, Verdict.GO_ON),
        ({"EXPIRED": 10}, 60, Verdict.UNDECIDED),
        ({}, 60, Verdict.UNDECIDED),
    ],
)
def test_the_judgement_of_a_canary(states, seconds, verdict):
    """Failures count among what has ended; silence is no success."""
    assert judge(Canary(0.05, 60, count=100), states, seconds).verdict is verdict
