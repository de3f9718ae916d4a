"""Instants as the API writes them."""

from datetime import UTC, datetime


def instant(moment: datetime) -> str:
    """Return an aware instant as RFC 3339 in UTC, to the millisecond."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"
