"""News of inboxes: what happened, told to whoever watches, after the commit and without waiting.

A message on the channel of the user (`app.domain.inbox_channel`) says {"event", "id", "at"}: ids only, so that who
watches asks for the rest, with the rights that it has. Nothing depends on a message: one that is lost shows at the
next look.
"""

from datetime import UTC, datetime

import orjson

from app.cache.courier import Courier
from app.domain.inbox_channel import inbox_channel
from app.domain.instants import instant


class InboxEvents:
    """Tells what happened. Never raises and never waits for the server."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    def tell(self, tenant_id: str, user_id: str, event: str, identifier: str | None = None) -> None:
        """Tell `notification.<event>` of a notification, or of all of the user's when there is no `identifier`."""
        said = {"event": f"notification.{event}", "id": identifier, "at": instant(datetime.now(UTC))}
        command = ("PUBLISH", inbox_channel(tenant_id, user_id), orjson.dumps(said))
        self._courier.put(lambda: command)
