"""Masking: whatever the address, most of it stays hidden."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain import masking

LETTERS = st.text("abcdefghijklmnopqrstuvwxyz0123456789._+-é", min_size=1, max_size=40)


def shown(masked: str) -> int:
    """How many characters of a masked text are not stars."""
    return sum(letter != "*" for letter in masked)


@given(LETTERS, st.text("abcxyz0-", min_size=1, max_size=30), st.text("abc", min_size=2, max_size=12))
def test_of_an_address_two_letters_and_the_ending_are_shown(local: str, label: str, ending: str) -> None:
    """At most a letter on each side of the @, none of a short name, and an ending of six letters.

    Fails when a short local part is shown whole.
    """
    masked = masking.email(f"{local}@{label}.{ending}")
    before, _, behind = masked.rpartition("@")
    assert before in {"***", f"{local[0]}***"}
    assert len(local) >= 3 or before == "***"
    assert behind.removesuffix(f".{ending}") in {"***", f"{label[0]}***"}
    assert shown(masked) <= 1 + 1 + 1 + 7


@given(st.text("0123456789", min_size=7, max_size=15))
def test_of_a_number_six_digits_are_shown_at_most_and_three_are_hidden(digits: str) -> None:
    """The number of stars is always the same. Fails when a short number shows its beginning and its end."""
    masked = masking.phone(f"+{digits}")
    assert masked.count("*") == 5
    assert sum(letter.isdigit() for letter in masked) <= min(6, len(digits) - 3)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=300))
def test_of_a_token_eight_characters_are_shown_at_most_and_half_is_hidden(token: str) -> None:
    """A short one is hidden whole."""
    masked = masking.token(token)
    assert masked == "***" or (masked == f"{token[:4]}***{token[-4:]}" and len(token) >= 16)


@given(st.text(max_size=100), st.sampled_from(["EMAIL", "SMS", "PUSH", "IN_APP", "NEW"]))
def test_no_text_breaks_masking(text: str, channel: str) -> None:
    """Whatever stands where an address should, and for a channel that is not known nothing is shown."""
    masked = masking.recipient(channel, text)
    assert "***" in masked
    assert channel not in {"IN_APP", "NEW"} or masked == "***"
    assert shown(masked) <= 12


def test_the_usual_ones_look_as_documented() -> None:
    """Of the page about users."""
    assert masking.email("ana@example.com") == "a***@e***.com"
    assert masking.email("al@example.com") == "***@e***.com"
    assert masking.phone("+447700900000") == "+44*****0000"
    assert masking.token("sandbox:ok-0123456789") == "sand***6789"
