"""From a loaded row to the message that an adapter sends: its seals are opened here, in the worker's memory only.

Whatever it raises concerns one delivery. A key that this process does not have is a fault of the installation and
no message's: such a delivery waits.
"""

import json
from typing import Any, Protocol

import orjson

from app.db.deliveries import Loaded
from app.domain.kinds import Channel
from app.sealing import SealBrokenError, Vault, context
from app.services.batches.content import with_shared
from providers.base import Message

_BATCHES_REMEMBERED = 64
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
        self._of_batches: dict[str, dict[str, Any]] = {}

    def __call__(self, row: Loaded) -> Message:
        """Return the message of a row; raise RenderError when it has no recipient or nothing to say."""
        if row.sealed is None:
            raise RenderError("erased", "what it said was erased")
        said = self._said(row, row.sealed)
        recipient = self._recipient(row, said)
        title, body = said.get("title", ""), said.get("body", "")
        if not title.strip() and not body.strip():
            raise RenderError("empty_content", "neither title nor body has any text")
        if row.metadata is None:
            return Message(row.id, recipient, title, body)
        pairs = {
            str(key): value if isinstance(value, str) else json.dumps(value)
            for key, value in json.loads(row.metadata).items()
        }
        return Message(row.id, recipient, title, body, metadata=pairs)

    def _said(self, row: Loaded, sealed: memoryview) -> dict[str, Any]:
        said: dict[str, Any] = {}
        if len(sealed):
            said = orjson.loads(self._open(context("notification", row.tenant_id, row.notification_id), sealed))
        if row.batch_id is None:
            return said
        return with_shared(self._of_batch(row, row.batch_id), said)

    def _of_batch(self, row: Loaded, batch_id: str) -> dict[str, Any]:
        """Return what a batch says. It never changes, so it is opened once for thousands of rows."""
        said = self._of_batches.get(batch_id)
        if said is None:
            if row.batch_sealed is None:
                raise RenderError("batch_gone", "its batch is not there any more")
            said = orjson.loads(self._open(context("batch", row.tenant_id, batch_id), row.batch_sealed))
            if len(self._of_batches) >= _BATCHES_REMEMBERED:
                self._of_batches.clear()
            self._of_batches[batch_id] = said
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
