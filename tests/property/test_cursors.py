"""Cursors: what was made is read again, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.cursors import Cursors

CURSORS = Cursors("a secret of this test")
places = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), places)
def test_a_cursor_leads_to_its_place(scope, place):
    """In its own list and nowhere else, and only under the secret that made it; it fits into a URL as it is."""
    cursor = CURSORS.make(scope, place)
    assert CURSORS.read(scope, cursor) == place
    assert cursor.replace("-", "").replace("_", "").isalnum()
    for other, where in ((CURSORS, scope + "x"), (Cursors("another secret"), scope)):
        with pytest.raises(ValueError):
            other.read(where, cursor)


@given(places, st.data())
def test_any_other_text_is_refused(place, data):
    """Case K15. Strange text, one letter changed, added or taken away; fails with a decoder that forgives."""
    cursor = CURSORS.make("list", place)
    at = data.draw(st.integers(0, len(cursor) - 1))
    letter = data.draw(st.characters())
    for text in (
        data.draw(st.text(max_size=40)),
        cursor[:at] + letter + cursor[at + 1 :],
        cursor[:at] + letter + cursor[at:],
        cursor[:at] + cursor[at + 1 :],
        cursor + "=" * (-len(cursor) % 4 or 4),
    ):
        if text != cursor:
            with pytest.raises(ValueError):
                CURSORS.read("list", text)
