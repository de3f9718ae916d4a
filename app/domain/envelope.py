"""The messages that travel through Kafka: ids only, never an address or content.

A delivery envelope names one delivery; a marker carries a number of the flow sequence through the whole pipe,
so that rescue can prove which messages were lost. Both are JSON objects told apart by `event_type`.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.domain.kinds import Channel, Priority

VERSION = 1
DELIVERY_DUE = "delivery.due"
MARKER = "flow.marker"


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

    def encode(self) -> bytes:
        """Return the JSON bytes of this envelope, stamped with the sender's UTC clock (for people only)."""
        return json.dumps(
            {
                "version": VERSION,
                "event_id": self.event_id,
                "event_type": DELIVERY_DUE,
                "timestamp": datetime.now(UTC).isoformat(),
                "delivery_id": self.delivery_id,
                "notification_id": self.notification_id,
                "channel": self.channel.value,
                "priority": self.priority.name,
                "tenant_id": self.tenant_id,
                "rescues": self.rescues,
            },
            separators=(",", ":"),
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
                "timestamp": datetime.now(UTC).isoformat(),
                "topic": self.topic,
                "partition": self.partition,
                "seq": self.seq,
            },
            separators=(",", ":"),
        ).encode()


def decode(value: bytes | None) -> DeliveryDue | Marker:
    """Return what a record carries; raise EnvelopeError for anything that is not one of ours."""
    try:
        data: Any = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise EnvelopeError(f"not an object but {type(data).__name__}")
    if data.get("version") != VERSION:
        raise EnvelopeError(f"unknown version {data.get('version')!r}, this consumer knows {VERSION}")
    try:
        if data["event_type"] == MARKER:
            return Marker(str(data["topic"]), int(data["partition"]), int(data["seq"]))
        if data["event_type"] == DELIVERY_DUE:
            return DeliveryDue(
                event_id=str(data["event_id"]),
                delivery_id=str(UUID(data["delivery_id"])),
                notification_id=str(UUID(data["notification_id"])),
                channel=Channel(data["channel"]),
                priority=Priority[data["priority"]],
                tenant_id=str(data["tenant_id"]),
                rescues=int(data.get("rescues", 0)),
            )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise EnvelopeError(f"broken field: {error!r}") from error
    raise EnvelopeError(f"unknown event_type {data['event_type']!r}")
