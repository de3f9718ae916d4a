"""Sealing: what comes out is what went in, for its own place only, whole or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.encryption_keys import parse_keys
from app.sealing import SealBrokenError, UnknownKeyError, Vault, context, key_of

OLD, NEW, INDEX = (bytes([n]) * 32 for n in range(3))
BEFORE = Vault({1: OLD}, 1, INDEX)
AFTER = Vault({2: NEW, 1: OLD}, 2, INDEX)
places = st.lists(st.text(max_size=20), min_size=1, max_size=3)


@given(places, st.binary(max_size=300))
def test_what_was_sealed_opens_after_a_new_key_came_too(place: list[str], plain: bytes) -> None:
    """A key that seals no more still opens; the value tells which one it needs."""
    sealed = BEFORE.seal(context("x", *place), plain)
    assert AFTER.open(context("x", *place), sealed) == plain
    assert (key_of(sealed), key_of(AFTER.seal(b"", plain))) == (1, 2)
    assert len(sealed) == len(plain) + 33


@given(places, places, st.binary(max_size=50))
def test_a_value_opens_at_its_own_place_only(place: list[str], other: list[str], plain: bytes) -> None:
    """Fails when a value is not bound to its row: copied to another one, it would show there."""
    sealed = BEFORE.seal(context("x", *place), plain)
    if other != place:
        with pytest.raises(SealBrokenError):
            BEFORE.open(context("x", *other), sealed)
    with pytest.raises(SealBrokenError):
        BEFORE.open(context("y", *place), sealed)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_value_of_which_one_bit_was_changed_does_not_open(plain: bytes, data: st.DataObject) -> None:
    """Fails when any part of it, the header included, is not authenticated."""
    sealed = bytearray(BEFORE.seal(b"place", plain))
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((SealBrokenError, UnknownKeyError)):
        BEFORE.open(b"place", bytes(sealed))


@given(st.binary(max_size=60))
def test_any_other_bytes_are_refused(noise: bytes) -> None:
    """What was never sealed raises the same errors, whatever it is."""
    with pytest.raises((SealBrokenError, UnknownKeyError)):
        BEFORE.open(b"place", noise)


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_a_blind_index_tells_equal_addresses_of_one_tenant_only(tenant: str, first: str, second: str) -> None:
    """Another tenant, kind or key gives another index, so that none can be compared with them."""
    index = BEFORE.index(tenant, "email", first)
    assert (index == AFTER.index(tenant, "email", second)) == (first == second)
    assert index != BEFORE.index(tenant + "2", "email", first)
    assert index != BEFORE.index(tenant, "phone", first)
    assert index != Vault({1: OLD}, 1, OLD).index(tenant, "email", first)
    assert len(index) == 16


def test_a_key_that_is_not_there_is_told_from_a_value_that_is_damaged() -> None:
    """The first is a fault of the installation, and the value is still whole."""
    with pytest.raises(UnknownKeyError, match="key 2"):
        BEFORE.open(b"", AFTER.seal(b"", b"x"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at least one key"),
        ("1:c2hvcnQ=", "32 bytes, this one is 5"),
        ("1:not base64", "base64"),
        ("x:" + "A" * 43 + "=", "ID:BASE64"),
        ("0:" + "A" * 43 + "=", "from 1 to 65535"),
        ("65536:" + "A" * 43 + "=", "from 1 to 65535"),
        ("1:" + "A" * 43 + "=,1:" + "B" * 42 + "A=", "twice"),
    ],
)
def test_keys_that_cannot_be_read_are_explained_and_not_quoted(text: str, reason: str) -> None:
    """The message says what is wrong; a key never stands in it."""
    with pytest.raises(ValueError, match=reason) as raised:
        parse_keys(text)
    assert "AAAA" not in str(raised.value)
