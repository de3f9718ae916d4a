"""What a caller asks for, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.kinds import Channel, Priority


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A time by the clocks on the wall: naive, in an IANA zone, or in the user's own where none is named."""

    at: datetime
    time_zone: str | None = None

    def stored(self) -> dict[str, str | None]:
        """Return it as a JSON object."""
        return {"at": self.at.isoformat(), "time_zone": self.time_zone}


@dataclass(frozen=True, slots=True)
class Fallback:
    """Channels to be tried one after the other: the next when one fails, or is not delivered after so long."""

    channels: tuple[Channel, ...]
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A notification as it was asked for. `expires_in` is in seconds, `recipients` as the client wrote them.

    `channels` all go out at once, beside the first of `fallback`. Of `scheduled_at` and `scheduled_local` at most
    one was given; the use case makes the first of the second. With a `template`, title, body, version, locale and
    time zone are filled in by `writing`.
    """

    user_id: str
    category: str
    priority: Priority
    channels: tuple[Channel, ...]
    title: str
    body: str
    recipients: Mapping[str, str]
    metadata: Mapping[str, Any]
    payload: Mapping[str, Any]
    scheduled_at: datetime | None = None
    expires_in: int | None = None
    scheduled_local: LocalTime | None = None
    html: str | None = None
    template: str | None = None
    template_version: int | None = None
    locale: str | None = None
    time_zone: str | None = None
    supersede_key: str | None = None
    fallback: Fallback | None = None
    is_ordered: bool = False

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        """Every channel that may be used."""
        return self.channels if self.fallback is None else (*self.channels, *self.fallback.channels)


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's key with its scope, and a digest of the request that may use it."""

    route: str
    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The stored answer, JSON text; `is_replay` when an earlier request stored it."""

    text: str
    is_replay: bool
