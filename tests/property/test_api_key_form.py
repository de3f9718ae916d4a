"""The form of an API key: what is made is known again, and no slip of a finger passes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from app.domain.api_keys import digest, mint, prefix_of
from app.observability.redaction import mask_text


@given(st.data())
def test_a_mistyped_key_is_no_key(data):
    """One letter changed, left out, doubled, or two swapped: it is refused without a look into the table.

    Fails without the check sum.
    """
    key = mint().text
    at = data.draw(st.integers(0, len(key) - 1))
    letter = data.draw(st.characters())
    for text in (
        key[:at] + letter + key[at + 1 :],
        key[:at] + key[at + 1 :],
        key[:at] + key[at] + key[at:],
        key[:at] + key[at + 1 : at + 2] + key[at] + key[at + 2 :],
    ):
        assert (prefix_of(text) is None) == (text != key)


@given(st.text())
def test_any_text_can_be_asked_about(text):
    """Nothing raises, whatever a client sends."""
    assert prefix_of(text) is None
    assert len(digest(text)) == 32


def test_a_key_is_what_scanners_look_for():
    """The documented pattern finds each key, its prefix is in it, no two are alike, and logs mask it."""
    keys = [mint() for _ in range(200)]
    assert len({key.prefix for key in keys}) == len({key.text for key in keys}) == 200
    for key in keys:
        assert re.fullmatch(r"ak_[0-9a-f]{12}_[0-9a-f]{72}", key.text)
        assert prefix_of(key.text) == key.prefix
        assert key.text not in repr(key)
        masked = mask_text(f"failed with {key.text}, sorry")
        assert masked == "failed with [redacted], sorry"
    assert mask_text(f"key {keys[0].prefix} was used") == f"key {keys[0].prefix} was used"
