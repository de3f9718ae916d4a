"""From what was asked for and who it is for to the deliveries that are made. Pure.

A channel ends in deliveries (a push makes one for each device), or in `suppressed` with the rule that kept it from
being sent. What can never be right, a bad address or nobody to send to, is refused as a whole.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
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
    """One delivery to be made: to which device, and not before when, if that is later than it is due.

    `step` is its place in a chain of fallbacks, for those that are in one.
    """

    channel: Channel
    device_id: str | None = None
    held_until: datetime | None = None
    step: int | None = None


@dataclass(slots=True)
class Plan:
    """What becomes of a submission. `recipients` are the explicit ones, normalised.

    `steps` are the channels of a chain that have somebody to go to; the first is among the deliveries.
    """

    deliveries: list[Planned] = field(default_factory=list)
    steps: list[list[Planned]] = field(default_factory=list)
    suppressed: list[dict[str, str]] = field(default_factory=list)
    recipients: dict[str, str] = field(default_factory=dict)


def plan(submission: Submission, user: KnownUser | None, capped: Collection[Channel] = ()) -> Plan:
    """Return the plan; raise Refused when a recipient is no address, or a channel has nobody to go to.

    `capped` are channels over which the user has had enough of this category for now.
    """
    made = Plan(recipients=_normalised(submission))
    blocked = _NOT_SENT_TO.get(user.status) if user is not None else None
    nobody: list[Problem] = []

    def planned(channel: Channel) -> list[Planned]:
        found: list[Planned] = []
        reason = blocked or (CAPPED if channel in capped else None)
        if reason is None:
            found, reason = _reached(channel, made.recipients, user, nobody)
        if reason is not None:
            made.suppressed.append({"channel": channel.value, "reason": reason})
        return found

    for channel in submission.channels:
        made.deliveries += planned(channel)
    if submission.fallback is not None:
        made.steps = [step for channel in submission.fallback.channels if (step := planned(channel))]
        if made.steps:
            made.deliveries += [replace(each, step=0) for each in made.steps[0]]
    if nobody:
        raise Refused(
            "DOMAIN_USER_NOT_FOUND", "The user is not known, and a channel has no recipient of its own.", nobody
        )
    return made


def _reached(
    channel: Channel, recipients: Mapping[str, str], user: KnownUser | None, nobody: list[Problem]
) -> tuple[list[Planned], str | None]:
    """Return the deliveries of a channel, or why there are none; a channel with nobody to go to is a problem."""
    if channel is Channel.IN_APP or channel.value in recipients:
        return [Planned(channel)], None
    if user is None:
        nobody.append(Problem(f"recipients.{channel}", f"needed for channel {channel}: the user is not known"))
        return [], None
    return _own_addresses(channel, user)


def _own_addresses(channel: Channel, user: KnownUser) -> tuple[list[Planned], str | None]:
    """Return the deliveries to a user's own addresses, or why there are none."""
    if channel is Channel.PUSH:
        reason = None if user.devices else "devices_muted" if user.has_muted_devices else "no_device"
        return [Planned(channel, device.id) for device in user.devices], reason
    has_address = user.has_email if channel is Channel.EMAIL else user.has_phone
    return ([Planned(channel)], None) if has_address else ([], "no_address")


def _normalised(submission: Submission) -> dict[str, str]:
    """Return the explicit recipients of the channels that are asked for; raise Refused for what is no address."""
    recipients: dict[str, str] = {}
    invalid: list[Problem] = []
    for channel in submission.all_channels:
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
