"""From what was asked for and who it is for to the deliveries that are made. Pure.

A channel ends in deliveries (a push makes one for each device), or in `suppressed` with the rule that kept it from
being sent. What can never be right, a bad address or nobody to send to, is refused as a whole. Each decision is
written down: explain shows the same record that every stored notification keeps.

The worker decides once more right before it sends (`app.services.deliver.check`), by the same rules.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from app.domain.circumstances import Circumstances
from app.domain.instants import instant
from app.domain.kinds import Channel
from app.domain.preferences import Rule, category_policy, quiet_window, resolve
from app.domain.quiet_hours import Window, release_at
from app.domain.users import Device, KnownUser, UserStatus
from app.services.accept.submission import Submission
from app.services.recipients import NORMALISERS, InvalidRecipientError
from app.services.refusal import Problem, Refused

NOT_SENT_TO = {UserStatus.INACTIVE: "user_inactive", UserStatus.SUSPENDED: "user_suspended"}
PREFERENCE_OFF = "preference_off"
ADDRESS_SUPPRESSED = "address_suppressed"
CAPPED = "frequency_cap"


@dataclass(frozen=True, slots=True)
class Planned:
    """One delivery to be made: to which device, and not before when, if that is later than it is due.

    `quiet` are the hours that it is held over: their window and zone. `step` is its place in a chain of fallbacks,
    for those that are in one.
    """

    channel: Channel
    device_id: str | None = None
    held_until: datetime | None = None
    quiet: tuple[Window, ZoneInfo] | None = None
    step: int | None = None


@dataclass(slots=True)
class Plan:
    """What becomes of a submission. `recipients` are the explicit ones, normalised; `decision` says why.

    `steps` are the channels of a chain that have somebody to go to; the first is among the deliveries. The worker
    decides about the others once more when they are made.
    """

    deliveries: list[Planned] = field(default_factory=list)
    steps: list[list[Planned]] = field(default_factory=list)
    suppressed: list[dict[str, str]] = field(default_factory=list)
    recipients: dict[str, str] = field(default_factory=dict)
    decision: list[dict[str, Any]] = field(default_factory=list)

    def suppress(self, channel: Channel, reason: str, rule: str | None = None) -> None:
        """Make no delivery on a channel."""
        self.suppressed.append({"channel": channel.value, "reason": reason})
        self.decision.append(
            {"channel": channel.value, "verdict": "suppress", "reason": reason, "rule": rule or reason}
        )

    @property
    def is_for_inbox(self) -> bool:
        """Whether it comes into the in-app inbox as soon as it is due."""
        return any(each.channel is Channel.IN_APP and each.held_until is None for each in self.deliveries)


def plan(
    submission: Submission,
    user: KnownUser | None,
    around: Circumstances | None = None,
    due_at: datetime | None = None,
    capped: Collection[Channel] = (),
) -> Plan:
    """Return the plan; raise Refused when a recipient is no address, or a channel has nobody to go to.

    `around` is what was said about such messages, `due_at` when it is due: by default nothing, and now.
    `capped` are channels over which the user has had enough of this category for now.
    """
    planner = _Planner(
        submission,
        user,
        around or Circumstances(category_policy(submission.category)),
        due_at or datetime.now(UTC),
        capped,
        Plan(recipients=_normalised(submission)),
    )
    nobody: list[Problem] = []

    def planned(channel: Channel) -> list[Planned]:
        if user is None and channel is not Channel.IN_APP and channel.value not in planner.made.recipients:
            nobody.append(Problem(f"recipients.{channel}", f"needed for channel {channel}: the user is not known"))
            return []
        return planner.decide(channel)

    made = planner.made
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


@dataclass(frozen=True, slots=True)
class _Planner:
    """Decides channel by channel what becomes of one submission."""

    submission: Submission
    user: KnownUser | None
    around: Circumstances
    due_at: datetime
    capped: Collection[Channel]
    made: Plan

    def decide(self, channel: Channel) -> list[Planned]:
        """Return the deliveries of a channel whose recipient is known, or say why there are none."""
        user, around, made = self.user, self.around, self.made
        wanted = resolve(around.choices, around.category, around.tenant, channel)
        if user is not None and user.status in NOT_SENT_TO:
            made.suppress(channel, NOT_SENT_TO[user.status])
        elif not wanted.allowed:
            made.suppress(channel, PREFERENCE_OFF, wanted.rule)
        elif channel.value in around.suppressed:
            made.suppress(channel, ADDRESS_SUPPRESSED)
        elif channel in self.capped:
            made.suppress(channel, CAPPED)
        elif user is None or channel is Channel.IN_APP or channel.value in made.recipients:
            return [self._delivery(channel, wanted.rule)]
        else:
            return self._to_own_addresses(channel, wanted.rule, user)
        return []

    def _to_own_addresses(self, channel: Channel, rule: Rule, user: KnownUser) -> list[Planned]:
        if channel is Channel.PUSH:
            devices = [device for device in user.devices if not device.is_suppressed]
            if not devices:
                reason = "devices_muted" if user.has_muted_devices else "no_device"
                self.made.suppress(channel, ADDRESS_SUPPRESSED if user.devices else reason)
            return [self._delivery(channel, rule, device) for device in devices]
        if channel.value in user.suppressed:
            self.made.suppress(channel, ADDRESS_SUPPRESSED)
        elif user.has_email if channel is Channel.EMAIL else user.has_phone:
            return [self._delivery(channel, rule)]
        else:
            self.made.suppress(channel, "no_address")
        return []

    def _delivery(self, channel: Channel, rule: Rule, device: Device | None = None) -> Planned:
        """Return one delivery, held over the quiet hours that it falls into."""
        around = self.around
        device_id, device_zone = (device.id, device.time_zone) if device else (None, None)
        record: dict[str, Any] = {"channel": channel.value, "verdict": "send", "rule": rule.value}
        if device_id is not None:
            record["device_id"] = device_id
        self.made.decision.append(record)
        quiet = quiet_window(around.wish, around.category, around.tenant, channel, self.submission.priority)
        if quiet.window is not None:
            zone = around.zone(device_zone, self.user.time_zone if self.user else None)
            until = release_at(self.due_at, quiet.window, zone)
            if until is not None:
                said = {"verdict": "hold", "rule": quiet.rule.value, "until": instant(until)}
                record |= {**said, "time_zone": zone.key}
                return Planned(channel, device_id, until, (quiet.window, zone))
        return Planned(channel, device_id)


def explicit(submission: Submission) -> dict[str, str]:
    """Return those explicit recipients that are addresses, normalised; `plan` refuses the others."""
    return _read(submission)[0]


def _normalised(submission: Submission) -> dict[str, str]:
    """Return the explicit recipients of the channels that are asked for; raise Refused for what is no address."""
    recipients, invalid = _read(submission)
    if invalid:
        raise Refused("DOMAIN_RECIPIENT_INVALID", "A recipient cannot be sent to.", invalid)
    return recipients


def _read(submission: Submission) -> tuple[dict[str, str], list[Problem]]:
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
    return recipients, invalid
