"""What a delivery needs to know of a user: whether anything is sent, and which addresses there are."""

from dataclasses import dataclass
from enum import StrEnum


class UserStatus(StrEnum):
    """Whether a user is sent anything."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    """Left, or not there yet; nothing is sent."""
    SUSPENDED = "SUSPENDED"
    """Shut out for the time being; nothing is sent."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that takes push messages and is not muted."""

    id: str
    time_zone: str | None
    is_suppressed: bool = False


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user as a plan sees one: never the addresses themselves, only whether there are any."""

    status: UserStatus
    has_email: bool
    has_phone: bool
    locale: str | None = None
    time_zone: str | None = None
    devices: tuple[Device, ...] = ()
    has_muted_devices: bool = False
    suppressed: frozenset[str] = frozenset()
    """The channels whose stored address stands on the suppression list."""
