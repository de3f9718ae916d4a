"""How long a provider asks to wait, in each of the shapes in which providers say it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.retry_after import CAP_SECONDS, parse_retry_after, parse_wait

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("0", 0.0),
        ("-5", 0.0),
        ("999999", CAP_SECONDS),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("Tue, 30 Nov 2027 12:00:00 GMT", CAP_SECONDS),
        ("Mon, 30 Nov 2026 14:00:30 +0200", 30.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Mon, 99 Nov 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_clamped(header, seconds):
    """Case I03. Negative is now, absurd is the cap, unreadable is no wait at all."""
    assert parse_retry_after(header, NOW) == seconds


@given(st.text(max_size=60))
def test_no_header_raises_or_leaves_the_range(header):
    """Whatever stands in the header, the wait is none or within the clamp."""
    wait = parse_retry_after(header, NOW)
    assert wait is None or 0.0 <= wait <= CAP_SECONDS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4.2.1 Too many messages, try again in 1 s", 1.0),
        ("4.7.1 Greylisted, please try again in 5 minutes", 300.0),
        ("4.7.0 Retry after 2 hours", CAP_SECONDS),
        ("wait 30 seconds", 30.0),
        ("4.3.0 The server cannot take this message now", None),
        ("4.7.1 try again later", None),
        ("see RFC 6647", None),
    ],
)
def test_wait_in_words_is_read(text, seconds):
    """SMTP has no header for it, so servers write it into the reply."""
    assert parse_wait(text) == seconds
