"""The messages that travel through Kafka: ids only, never an address or content.

A delivery envelope names one delivery; a marker carries a number of the flow sequence through the whole pipe,
so that rescue can prove which messages were lost. Both are JSON objects told apart by `event_type`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from app.domain.kinds import Channel, Priority

VERSION = 1
DELIVERY_DUE = "delivery.due"
MARKER = "flow.marker"
_LARGEST_COUNT = 2**63 - 1  # What PostgreSQL's bigint holds.
_REASON_LENGTH = 300  # A reason goes into logs and headers; the record itself may be a megabyte.

_is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII).fullmatch
_json_text = lru_cache(maxsize=4096)(json.dumps)
_CHANNELS = {channel.value: channel for channel in Channel}
_PRIORITIES = {priority.name: priority for priority in Priority}


class EnvelopeError(ValueError):
    """A record that no consumer can ever understand: poison, to be set aside with its reason."""


@dataclass(frozen=True, slots=True)
class DeliveryDue:
    """A delivery that is due. `rescues` counts how often its message was lost: a suspect travels alone."""

    event_id: str
    delivery_id: str
    notification_id: str
    channel: Channel
    priority: Priority
    tenant_id: str
    rescues: int = 0

    def encode(self, timestamp: str = "") -> bytes:
        """Return the JSON bytes of this envelope; `timestamp` is the sender's UTC clock (for people only).

        Written by hand, since this is the hottest line of the relay: of the fields only the tenant is free text.
        """
        return (
            f'{{"version":{VERSION},"event_id":"{self.event_id}","event_type":"{DELIVERY_DUE}",'
            f'"timestamp":"{timestamp or now()}","delivery_id":"{self.delivery_id}",'
            f'"notification_id":"{self.notification_id}","channel":"{self.channel.value}",'
            f'"priority":"{self.priority.name}","tenant_id":{_json_text(self.tenant_id)},'
            f'"rescues":{self.rescues}}}'
        ).encode()


@dataclass(frozen=True, slots=True)
class Marker:
    """A number of the flow sequence, drawn before it was produced to one partition of one topic."""

    topic: str
    partition: int
    seq: int

    def encode(self) -> bytes:
        """Return the JSON bytes of this marker."""
        return json.dumps(
            {
                "version": VERSION,
                "event_type": MARKER,
                "timestamp": now(),
                "topic": self.topic,
                "partition": self.partition,
                "seq": self.seq,
            },
            separators=(",", ":"),
        ).encode()


def now() -> str:
    """Return this process's clock as RFC 3339 in UTC."""
    return datetime.now(UTC).isoformat()


def decode(value: bytes | None, parse: Callable[[bytes], Any] = json.loads) -> DeliveryDue | Marker:
    """Return what a record carries; raise EnvelopeError for anything that is not one of ours.

    `parse` is the JSON reader, for who has a faster one than the standard library; it raises ValueError.
    """
    try:
        data = parse(value or b"")
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise EnvelopeError(f"not an object but {type(data).__name__}")
    if data.get("version") != VERSION:
        reason = f"unknown version {_shown(data.get('version'))}, this consumer knows {VERSION}"
        raise EnvelopeError(reason[:_REASON_LENGTH])
    try:
        if data["event_type"] == MARKER:
            return Marker(_text(data["topic"]), _count(data["partition"]), _count(data["seq"]))
        if data["event_type"] == DELIVERY_DUE:
            return DeliveryDue(
                event_id=_text(data["event_id"]),
                delivery_id=_uuid(data["delivery_id"]),
                notification_id=_uuid(data["notification_id"]),
                channel=_CHANNELS[data["channel"]],
                priority=_PRIORITIES[data["priority"]],
                tenant_id=_text(data["tenant_id"]),
                rescues=_count(data.get("rescues", 0)),
            )
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise EnvelopeError(f"broken field: {error!r}"[:_REASON_LENGTH]) from error
    raise EnvelopeError(f"unknown event_type {_shown(data['event_type'])}"[:_REASON_LENGTH])


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{_shown(value)} is not a text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_COUNT:
        raise ValueError(f"{_shown(value)} is not a count")
    return value


def _uuid(text: str) -> str:
    if not _is_uuid(text):
        raise ValueError(f"not a UUID in its canonical form: {text!r}")
    return text


def _shown(value: object) -> str:
    """Return a scalar as it is, and of anything deeper its type: the repr of a deep nest may end the stack."""
    return repr(value) if value is None or isinstance(value, str | int | float) else type(value).__name__
