"""The closed sets that every hop of the pipeline shares: channels and priorities."""

from enum import IntEnum, StrEnum


class Channel(StrEnum):
    """How a delivery reaches a person."""

    PUSH = "PUSH"
    EMAIL = "EMAIL"
    SMS = "SMS"
    IN_APP = "IN_APP"


class Priority(IntEnum):
    """Urgency, as stored in `delivery.priority`; a smaller number goes first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2
