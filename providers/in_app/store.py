"""In-app: the stored notification is the inbox, so a delivery of this channel is done when it is reached."""

from providers.base import Message
from providers.outcome import Accepted, Outcome


class InAppProvider:
    """Says delivered at once: the row that the message came from is what the user reads."""

    name = "in-app"
    deadline_seconds = 1.0

    async def start(self) -> None:
        """Nothing to open."""

    async def send(self, message: Message) -> Outcome:
        """Return delivered, for good; the reference is its id."""
        return self.send_at_once(message)

    def send_at_once(self, message: Message) -> Outcome:
        """Return delivered, for good; the reference is its id."""
        return Accepted(message.reference, is_final=True)

    async def close(self) -> None:
        """Nothing to close."""
