"""Push through a generic HTTP gateway: as SMS, with a collapse key and the data that the app shall get."""

from typing import Any

from providers.base import Message
from providers.http import HttpClient
from providers.outcome import Outcome


class HttpPushProvider:
    """Sends `{"reference", "to", "title", "body", "collapse_key", "ttl_seconds", "data"}`.

    `to` is the device's token. Without a collapse key of its own a message collapses on the delivery id, so that a
    second send replaces the first on the device.
    """

    def __init__(
        self, url: str, token: str = "", sender: str = "", timeout_seconds: float = 20.0, name: str = "http-push"
    ) -> None:
        self.name = name
        self.deadline_seconds = timeout_seconds
        self._sender = sender
        self._client = HttpClient(url, token, timeout_seconds)

    async def start(self) -> None:
        """Open the session; makes no connection."""
        await self._client.start()

    async def send(self, message: Message) -> Outcome:
        """Send one message."""
        fields: dict[str, Any] = {
            "reference": message.reference,
            "to": message.recipient,
            "title": message.title,
            "body": message.body,
            "collapse_key": message.collapse_key or message.reference,
        }
        if sender := message.sender or self._sender:
            fields["sender"] = sender
        if message.metadata:
            fields["data"] = message.metadata
        if message.ttl_seconds is not None:
            fields["ttl_seconds"] = message.ttl_seconds
        return await self._client.post(fields, message.reference)

    async def close(self) -> None:
        """Close the session."""
        await self._client.close()
