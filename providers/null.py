"""A provider that takes everything and sends nothing: what the pipeline itself costs shows against it."""

from providers.base import Message
from providers.outcome import Accepted, Outcome


class NullProvider:
    """Accepts at once. For benchmarks only."""

    def __init__(self, name: str = "null") -> None:
        self.name = name
        self.deadline_seconds = 1.0

    async def start(self) -> None:
        """Nothing to open."""

    async def send(self, message: Message) -> Outcome:
        """Return accepted; the reference is its id."""
        return self.send_at_once(message)

    def send_at_once(self, message: Message) -> Outcome:
        """Return accepted; the reference is its id."""
        return Accepted(message.reference)

    async def close(self) -> None:
        """Nothing to close."""
