"""From what was asked for and who it is for to the deliveries that are made. Pure.

A channel ends in deliveries (a push makes one for each device), or in `suppressed` with the rule that kept it from
being sent. What can never be right, a bad address or nobody to send to, is refused as a whole.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from app.domain.kinds import Channel
from app.domain.users import KnownUser, UserStatus
from app.services.accept.submission import Submission
from app.services.recipients import NORMALISERS, InvalidRecipientError
from app.services.refusal import Problem, Refused

CAPPED = "frequency_cap"
_NOT_SENT_TO = {UserStatus.INACTIVE: "user_inactive", UserStatus.SUSPENDED: "user_suspended"}


@dataclass(frozen=True, slots=True)
class Planned:
    """One delivery to be made: to which device, and not before when, if that is later than it is due."""

    channel: Channel
    device_id: str | None = None
    held_until: datetime | None = None


@dataclass(slots=True)
class Plan:
    """What becomes of a submission. `recipients` are the explicit ones, normalised."""

    deliveries: list[Planned] = field(default_factory=list)
    suppressed: list[dict[str, str]] = field(default_factory=list)
    recipients: dict[str, str] = field(default_factory=dict)


def plan(submission: Submission, user: KnownUser | None, capped: Collection[Channel] = ()) -> Plan:
    """Return the plan; raise Refused when a recipient is no address, or a channel has nobody to go to.

    `capped` are channels over which the user has had enough of this category for now.
    """
    made = Plan(recipients=_normalised(submission))
    blocked = _NOT_SENT_TO.get(user.status) if user is not None else None
    nobody: list[Problem] = []
    for channel in submission.channels:
        if blocked is not None:
            made.suppressed.append({"channel": channel.value, "reason": blocked})
        elif channel in capped:
            made.suppressed.append({"channel": channel.value, "reason": CAPPED})
        elif channel is Channel.IN_APP or channel.value in made.recipients:
            made.deliveries.append(Planned(channel))
        elif user is None:
            nobody.append(Problem(f"recipients.{channel}", f"needed for channel {channel}: the user is not known"))
        else:
            _to_own_addresses(made, channel, user)
    if nobody:
        raise Refused(
            "DOMAIN_USER_NOT_FOUND", "The user is not known, and a channel has no recipient of its own.", nobody
        )
    return made


def _to_own_addresses(made: Plan, channel: Channel, user: KnownUser) -> None:
    reason = None
    if channel is Channel.PUSH:
        made.deliveries += [Planned(channel, device.id) for device in user.devices]
        if not user.devices:
            reason = "devices_muted" if user.has_muted_devices else "no_device"
    elif user.has_email if channel is Channel.EMAIL else user.has_phone:
        made.deliveries.append(Planned(channel))
    else:
        reason = "no_address"
    if reason is not None:
        made.suppressed.append({"channel": channel.value, "reason": reason})


def _normalised(submission: Submission) -> dict[str, str]:
    """Return the explicit recipients of the channels that are asked for; raise Refused for what is no address."""
    recipients: dict[str, str] = {}
    invalid: list[Problem] = []
    for channel in submission.channels:
        text = submission.recipients.get(channel)
        normalise = NORMALISERS.get(channel)
        if text is None or normalise is None:
            continue
        try:
            recipients[channel.value] = normalise(text)
        except InvalidRecipientError as error:
            invalid.append(Problem(f"recipients.{channel}", str(error)))
    if invalid:
        raise Refused("DOMAIN_RECIPIENT_INVALID", "A recipient cannot be sent to.", invalid)
    return recipients
