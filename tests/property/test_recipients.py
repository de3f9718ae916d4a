"""Addresses: the quick ways through agree with the libraries, and normalising twice changes nothing."""

import phonenumbers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.services.recipients import InvalidRecipientError, _email, _parsed, email_address, phone_number

_CODES = sorted(phonenumbers.COUNTRY_CODE_TO_REGION_CODE)
_NUMBERS = st.builds(
    lambda code, rest: f"+{code}{rest}", st.sampled_from(_CODES), st.text("0123456789", min_size=1, max_size=14)
)
_LOCALS = st.text("abcXYZ019._+-'\"@ é", max_size=20)
_DOMAINS = st.sampled_from(
    ["example.com", "Sandbox.Example.COM", "exämple.com", "x", "a..b", "-a.com", "test", ""]
)


def _outcome(function: object, text: str) -> str | None:
    try:
        return str(function(text))  # type: ignore[operator]
    except InvalidRecipientError:
        return None


@settings(max_examples=2000, deadline=None)
@given(_NUMBERS)
def test_a_plain_number_is_what_the_library_says(text: str) -> None:
    """Fails when the quick way forgets the lengths of a country, or a prefix that the library drops."""
    assert _outcome(phone_number, text) == _outcome(_parsed, text)


@settings(max_examples=300, deadline=None)
@given(_NUMBERS)
def test_a_number_that_was_normalised_stays_as_it_is(text: str) -> None:
    """Two spellings of one number meet in one form, which is its own."""
    once = _outcome(phone_number, text)
    assert once is None or phone_number(once) == once


@settings(max_examples=1000, deadline=None)
@given(_LOCALS, _DOMAINS)
def test_a_plain_address_is_what_the_library_says(local: str, domain: str) -> None:
    """Fails when the quick way takes a local part that the library refuses, or writes a domain another way."""
    text = f"{local}@{domain}"
    assert _outcome(email_address, text) == _outcome(_email, text)


@pytest.mark.parametrize("number", [f"+447700900{n:03d}" for n in range(0, 1000, 37)])
def test_the_sandbox_numbers_are_possible(number: str) -> None:
    """They are reserved for fiction, so they are possible and never valid."""
    assert phone_number(number) == number
