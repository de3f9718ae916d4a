"""From a loaded row to the message that an adapter sends: its seals are opened here, in the worker's memory only.

Whatever it raises concerns one delivery. A key that this process does not have is a fault of the installation and
no message's: such a delivery waits.
"""

import json
from base64 import urlsafe_b64encode
from typing import Any, Protocol

import orjson

from app.db.deliveries import Loaded
from app.domain.kinds import Channel
from app.sealing import SealBrokenError, Vault, context
from providers.base import Message

_ADDRESS_KIND = {Channel.EMAIL: "email", Channel.SMS: "phone"}


class RenderError(Exception):
    """A delivery that can never be sent; `code` becomes its error code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Renderer(Protocol):
    """Makes a message of a row; raises RenderError, UnknownKeyError, or anything else for a bad row."""

    def __call__(self, row: Loaded) -> Message:
        """Return the message of `row`."""


class Render:
    """The renderer of the service."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def __call__(self, row: Loaded) -> Message:
        """Return the message of a row; raise RenderError when it has no recipient or nothing to say."""
        if row.sealed is None:
            raise RenderError("erased", "what it said was erased")
        said = self._said(row, row.sealed)
        recipient = self._recipient(row, said)
        title, body = said.get("title", ""), said.get("body", "")
        if not title.strip() and not body.strip():
            raise RenderError("empty_content", "neither title nor body has any text")
        collapse_key = None if row.supersede_key is None else self._collapse_key(row, row.supersede_key)
        if row.metadata is None:
            return Message(row.id, recipient, title, body, collapse_key=collapse_key)
        pairs = {
            str(key): value if isinstance(value, str) else json.dumps(value)
            for key, value in json.loads(row.metadata).items()
        }
        return Message(row.id, recipient, title, body, collapse_key=collapse_key, metadata=pairs)

    def _collapse_key(self, row: Loaded, supersede_key: str) -> str:
        """Return a keyed digest: the key itself may be longer than a provider takes, and is not for it to read."""
        digest = self._vault.index(row.tenant_id, "collapse", f"{len(row.user_id)}:{row.user_id}{supersede_key}")
        return urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _said(self, row: Loaded, sealed: memoryview) -> dict[str, Any]:
        plain = self._open(context("notification", row.tenant_id, row.notification_id), sealed)
        said: dict[str, Any] = orjson.loads(plain)
        return said

    def _recipient(self, row: Loaded, said: dict[str, Any]) -> str:
        """An explicit recipient goes before the user's own address. An in-app message lies under the user's id."""
        if row.channel == Channel.IN_APP:
            return row.user_id
        if explicit := said.get("recipients", {}).get(row.channel):
            return str(explicit)
        if row.address is None:
            raise RenderError("no_recipient", "the recipient has no address on this channel any more")
        if row.device_id is not None:
            place = context("device", row.tenant_id, row.device_id)
        else:
            place = context(_ADDRESS_KIND[Channel(row.channel)], row.tenant_id, row.user_id)
        return self._open(place, row.address).decode()

    def _open(self, place: bytes, sealed: memoryview) -> bytes:
        try:
            return self._vault.open(place, bytes(sealed))
        except SealBrokenError as error:
            raise RenderError("unreadable", str(error)) from error
