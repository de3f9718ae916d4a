"""SMS through a generic HTTP gateway: `POST` a JSON object, read 2xx or an error (shape: docs/sandbox.md)."""

from typing import Any

from providers.base import Message
from providers.http import HttpClient
from providers.outcome import Outcome


class HttpSmsProvider:
    """Sends `{"reference", "to", "body", "title", "sender", "ttl_seconds"}`.

    The delivery id is reference and Idempotency-Key.
    """

    def __init__(
        self, url: str, token: str = "", sender: str = "", timeout_seconds: float = 20.0, name: str = "http-sms"
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
            "sender": message.sender or self._sender,
        }
        if message.ttl_seconds is not None:
            fields["ttl_seconds"] = message.ttl_seconds
        return await self._client.post(fields, message.reference)

    async def close(self) -> None:
        """Close the session."""
        await self._client.close()
