"""What goes over a stream: frames of server-sent events, made of the messages that were published in Redis.

A frame carries ids and never content: who gets one asks the API for what is behind it, under the rules of the API.
Nothing that was published is passed on as it came; a text with a line break in it would be a frame of its own.
"""

import re
from typing import Any

import orjson

SYNC = b"event: sync\ndata: {}\n\n"
"""Tells a client to fetch the inbox anew: something may have happened that it was not told."""
HEARTBEAT = b":\n\n"
"""A comment, which clients ignore. It shows every machine on the way that the connection is alive."""

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z_]+(?:\.[a-z_]+)*")
_ID = re.compile(r"[\x21-\x7e]{1,64}")
_AT = re.compile(r"[\x20-\x7e]{1,40}")


def frame_of(message: bytes) -> bytes | None:
    """Return the frame of a published message `{"event", "id", "at"}`, or None when it is not one.

    `id` may be null for what is about no single notification, such as marking all of them as read.
    """
    try:
        content: Any = orjson.loads(message)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(content, dict):
        return None
    event, identifier, at = content.get("event"), content.get("id"), content.get("at")
    if not _fits(event, _NAME) or not _fits(at, _AT) or (identifier is not None and not _fits(identifier, _ID)):
        return None
    line = "" if identifier is None else f"id: {identifier}\n"
    data = orjson.dumps({"event": event, "id": identifier, "at": at})
    return b"%bdata: %b\n\n" % (f"event: {event}\n{line}".encode(), data)


def retry(seconds: float) -> bytes:
    """Return the frame that tells a client how long to wait before it connects again."""
    return b"retry: %d\n\n" % round(seconds * 1000)


def comment(text: str) -> bytes:
    """Return a comment, for people who look at a stream with curl."""
    return b": %b\n\n" % text.encode()


def _fits(value: Any, form: "re.Pattern[str]") -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None
