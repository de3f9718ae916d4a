"""What to do about a call that may have been accepted without our knowing: one policy a channel and priority.

No large provider has a key that makes a second send harmless, so the choice is between a possible double
(`resend`) and a possible loss that the API shows (`hold`).
"""

from enum import StrEnum

from app.domain.kinds import Channel, Priority


class Policy(StrEnum):
    """What the resolver does when the window of an UNKNOWN delivery is over."""

    RESEND = "resend"
    HOLD = "hold"


def default_policy(channel: Channel, priority: Priority) -> Policy:
    """Return `resend` where a double is hidden or harmless, or a one-time code would be lost; else `hold`."""
    if channel is Channel.SMS and priority is not Priority.HIGH:
        return Policy.HOLD
    return Policy.RESEND
