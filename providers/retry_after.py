"""Reading how long a provider asks to wait, from the shapes in which providers say it."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

CAP_SECONDS = 3600.0
"""No wait that a provider asks for is believed beyond this."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_IN_TEXT = re.compile(
    r"(?i)\b(?:again|retry|wait)\b[^.;]{0,40}?\b(\d{1,6})\s*(s|m|h)(?:ec(?:ond)?s?|in(?:ute)?s?|ours?)?\b"
)


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the wait in seconds of a `Retry-After` header: delta-seconds or an HTTP-date (RFC 9110, 10.2.3).

    The result lies in [0, CAP_SECONDS]; a header that is missing or cannot be read gives None. A date is
    measured against `now` (the machine's clock when omitted).
    """
    text = (value or "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return _until(text, now or datetime.now(UTC))
    return _clamped(seconds) if isfinite(seconds) else None


def parse_wait(text: str) -> float | None:
    """Return the wait in seconds that a reply says in words (`try again in 30 s`), or None."""
    found = _IN_TEXT.search(text)
    return _clamped(float(found[1]) * _UNITS[found[2].lower()]) if found else None


def _until(text: str, now: datetime) -> float | None:
    try:
        due = parsedate_to_datetime(text)
    except ValueError:
        return None
    return _clamped((due.replace(tzinfo=due.tzinfo or UTC) - now).total_seconds())


def _clamped(seconds: float) -> float:
    return min(max(seconds, 0.0), CAP_SECONDS)
