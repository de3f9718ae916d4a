"""From a loaded row to the message that an adapter sends. Pure; whatever it raises concerns one delivery only."""

import json
from collections.abc import Callable
from typing import Any

from providers.base import Message

Renderer = Callable[[tuple[Any, ...]], Message]
"""Makes a message of a row of `app.db.deliveries.load`; raises RenderError or anything else for a bad row."""


class RenderError(Exception):
    """A delivery that can never be sent; `code` becomes its error code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def render(row: tuple[Any, ...]) -> Message:
    """Return the message of a row; raise RenderError when it has no recipient or nothing to say."""
    reference, _attempts, _allowed, _priority, recipient, title, body, metadata, template, _due = row
    if not recipient:
        raise RenderError("no_recipient", "no address of the recipient on this channel")
    if not title.strip() and not body.strip():
        if template:
            raise RenderError("unknown_template", "the template is not known to this version")
        raise RenderError("empty_content", "neither title nor body has any text")
    if metadata is None:
        return Message(reference, recipient, title, body)
    pairs = {
        str(key): value if isinstance(value, str) else json.dumps(value)
        for key, value in json.loads(metadata).items()
    }
    return Message(reference, recipient, title, body, metadata=pairs)
