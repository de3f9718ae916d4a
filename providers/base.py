"""The port between the service and its providers: a message in, an outcome out."""

from dataclasses import dataclass, field
from typing import Protocol

from providers.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Message:
    """One rendered message to one recipient.

    `reference` is the delivery id: an adapter passes it as the provider's idempotency key, client reference or
    Message-ID, wherever the provider has one. A later message with the same `collapse_key` replaces this one on
    the recipient's device, where the provider can do that: 22 characters of URL-safe base64, fit for all of them;
    with None nothing but a repetition of this very message may replace it. After `ttl_seconds` from the call,
    whole and rounded down, the message is worth nothing: an adapter passes it on as validity or time to live, and
    never a longer one; 0 is "now or never", None no limit.
    `unsubscribe_url` takes a one-click POST (RFC 8058).
    """

    reference: str
    recipient: str
    title: str
    body: str
    html: str | None = None
    collapse_key: str | None = None
    ttl_seconds: int | None = None
    sender: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    unsubscribe_url: str | None = None


class Provider(Protocol):
    """One vendor on one channel. Lives in one event loop, pools its connections, never retries by itself."""

    name: str
    deadline_seconds: float
    """The hard limit of one call, connect to answer. The service's lease of a delivery is longer than this."""

    async def start(self) -> None:
        """Open what can be opened ahead (sessions, connections); never raises for an absent provider."""
        ...

    async def send(self, message: Message) -> Outcome:
        """Send one message and say what came of it; raises nothing but CancelledError."""
        ...

    async def close(self) -> None:
        """Close the pooled connections."""
        ...


class AtOnceProvider(Provider, Protocol):
    """A provider without any input or output: the service calls it directly and spares it a task of the loop."""

    def send_at_once(self, message: Message) -> Outcome:
        """Return what `send` would; never blocks."""
        ...
