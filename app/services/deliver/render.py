"""From a loaded row to the message that an adapter sends: seals are opened and templates rendered here.

What was sealed is open in the worker's memory only. Whatever it raises concerns one delivery. A key that this
process does not have is a fault of the installation and no message's: such a delivery waits.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, Protocol

import orjson
from sqlalchemy.engine import Connection

from app.db import templates
from app.db.deliveries import Loaded
from app.domain.kinds import Channel
from app.rendering.bodies import Content
from app.rendering.library import Key, Library, version_of
from app.rendering.limits import RenderingError
from app.rendering.variables import check
from app.sealing import SealBrokenError, Vault, context
from app.services.accept.writing import known_zone
from app.services.batches.content import with_shared
from app.services.deliver.policies import PolicyBook
from app.services.unsubscribe import UnsubscribeLinks
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

    def gather(self, connection: Connection, rows: Sequence[Loaded]) -> None:
        """Bring to hand what the messages of `rows` are made with; raises what the database raises."""


class Render:
    """The renderer of the service."""

    def __init__(self, vault: Vault, library: Library, links: UnsubscribeLinks, policies: PolicyBook) -> None:
        self._vault = vault
        self._of_batches: dict[str, dict[str, Any]] = {}
        self._library = library
        self._links = links
        self._policies = policies

    def gather(self, connection: Connection, rows: Sequence[Loaded]) -> None:
        """Load the versions of templates that are not at hand: one statement, and hardly ever any."""
        missing = {key for row in rows if (key := _key(row)) is not None and self._library.find(key) is None}
        if missing:
            for stored in templates.load(connection, sorted(missing)):
                self._library.keep(version_of(stored))

    def __call__(self, row: Loaded) -> Message:
        """Return the message of a row; raise RenderError when it has no recipient or nothing to say."""
        if row.sealed is None:
            raise RenderError("erased", "what it said was erased")
        said = self._said(row, row.sealed)
        recipient = self._recipient(row, said)
        content = self._content(row, said)
        if not content.title.strip() and not content.body.strip():
            raise RenderError("empty_content", "neither title nor body has any text")
        link = self._unsubscribe(row)
        collapse_key = None if row.supersede_key is None else self._collapse_key(row, row.supersede_key)
        pairs = {
            str(key): value if isinstance(value, str) else json.dumps(value)
            for key, value in (json.loads(row.metadata) if row.metadata else {}).items()
        }
        return Message(
            row.id,
            recipient,
            content.title,
            content.body,
            content.html,
            collapse_key=collapse_key,
            metadata=pairs,
            unsubscribe_url=link,
        )

    def _collapse_key(self, row: Loaded, supersede_key: str) -> str:
        """Return a keyed digest: the key itself may be longer than a provider takes, and is not for it to read."""
        digest = self._vault.index(row.tenant_id, "collapse", f"{len(row.user_id)}:{row.user_id}{supersede_key}")
        return urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _unsubscribe(self, row: Loaded) -> str | None:
        """Return the link of an e-mail that one may do without; a mandatory one has none."""
        if row.channel != Channel.EMAIL:
            return None
        (said,) = self._policies.of([row.tenant_id]).values()
        if said.category(row.category).is_mandatory:
            return None
        return self._links.url(row.tenant_id, row.user_id, row.category)

    def _content(self, row: Loaded, said: dict[str, Any]) -> Content:
        """Return what is sent: as it was given, or made of the version that the notification was accepted with.

        An in-app message was made when it was accepted: for the reader it is what is stored.
        """
        key = _key(row)
        if key is None or row.channel == Channel.IN_APP:
            html = said.get("html") if row.channel == Channel.EMAIL else None
            return Content(said.get("title", ""), said.get("body", ""), html)
        version = self._library.find(key)
        if version is None:
            raise RenderError("unknown_template", "the version of the template is not there any more")
        values = check(version.variables, said.get("payload", {})).values
        try:
            return self._library.render(
                version, row.channel, row.locale, values, known_zone(said.get("time_zone"))
            )
        except RenderingError as error:
            raise RenderError(error.code, str(error)) from error

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


def _key(row: Loaded) -> Key | None:
    if row.template is None or row.template_version is None:
        return None
    return row.tenant_id, row.template, row.template_version
