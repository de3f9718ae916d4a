"""Locales: one spelling of each, and normalising twice changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.locales import UnknownLocaleError, locale, region_of


@pytest.mark.parametrize(
    ("text", "expected", "region"),
    [
        ("de", "de", None), ("PT-br", "pt-BR", "BR"), ("zh-hant-tw", "zh-Hant-TW", "TW"),
        ("es-419", "es-419", None),
        ("SL-ROZAJ-biske", "sl-rozaj-biske", None), ("de-CH-1996", "de-CH-1996", "CH"), ("fil", "fil", None),
    ],
)  # fmt: skip
def test_a_locale_has_one_spelling(text: str, expected: str, region: str | None) -> None:
    """As BCP 47 recommends it, with the country that phone numbers are read for."""
    assert locale(text) == expected
    assert region_of(expected) == region


@pytest.mark.parametrize(
    "text",
    ["", "e", "pt_BR", "pt-", "-BR", "english", "de-u-co-phonebk",
     "x-a", "i-klingon", "de DE", "de\n", "dé", "de-DE-DE",
     "sl-rozaj-ROZAJ", "de-" + "-".join(f"abcd{n}" for n in range(9))],
)  # fmt: skip
def test_what_chooses_no_template_is_refused(text: str) -> None:
    """Underscores, extensions, private use, repetitions."""
    with pytest.raises(UnknownLocaleError):
        locale(text)


@given(st.from_regex(r"[A-Za-z]{2,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?", fullmatch=True))
def test_normalising_twice_changes_nothing(text: str) -> None:
    """Two spellings meet in one form, which is its own."""
    once = locale(text)
    assert locale(once) == once == locale(text.lower()) == locale(text.upper())
