"""Scripted recipients: which address makes the simulated provider misbehave, and how.

One table for all channels, keyed by name; an e-mail or a push token says the name itself, a phone number says
it with its last three digits. An address outside the reserved ranges is always accepted.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

EMAIL_DOMAIN = "sandbox.example.com"
PUSH_PREFIX = "sandbox:"
SMS_PREFIX = "+447700900"
SMS_NUMBER_LENGTH = len(SMS_PREFIX) + 3


class Act(StrEnum):
    """What the simulated provider does with one message."""

    ACCEPT = "accept"
    FAIL = "fail"
    GONE = "gone"
    THROTTLE = "throttle"
    SLOW = "slow"
    HANG = "hang"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Script:
    """One behaviour. `times` bounds it per reference (None: for ever); `seconds` is the wait of SLOW."""

    act: Act
    times: int | None = None
    seconds: float = 0.0


ACCEPT = Script(Act.ACCEPT)
MAX_SLOW_SECONDS = 600.0

_FIXED = {
    "ok": ACCEPT,
    "fail-503": Script(Act.FAIL),
    "gone": Script(Act.GONE),
    "timeout": Script(Act.HANG),
    "drop-after-accept": Script(Act.DROP),
}
_COUNTED = re.compile(r"(fail-503|throttle)-?x([1-9]\d{0,3})|slow-(\d{1,6})")
_SMS_NAMES = {
    "503": "fail-503",
    "400": "gone",
    "429": "throttle-x1",
    "225": "slow-2500",
    "408": "timeout",
    "499": "drop-after-accept",
}
_SMS_FAILURES = re.compile(r"([1-9])53")


def named(name: str) -> Script:
    """Return the script of this name; an unknown name is accepted, as any ordinary address would be."""
    fixed = _FIXED.get(name)
    if fixed is not None:
        return fixed
    counted = _COUNTED.fullmatch(name)
    if counted is None:
        return ACCEPT
    kind, times, milliseconds = counted.groups()
    if milliseconds is not None:
        return Script(Act.SLOW, seconds=min(int(milliseconds) / 1000.0, MAX_SLOW_SECONDS))
    return Script(Act.THROTTLE if kind == "throttle" else Act.FAIL, times=int(times))


@lru_cache(maxsize=8192)
def script_for(recipient: str) -> Script:
    """Return what a message to this recipient meets, whatever its channel."""
    if recipient.startswith(SMS_PREFIX) and len(recipient) == SMS_NUMBER_LENGTH:
        digits = recipient[-3:]
        failures = _SMS_FAILURES.fullmatch(digits)
        return named(f"fail-503x{failures[1]}" if failures else _SMS_NAMES.get(digits, "ok"))
    if recipient.startswith(PUSH_PREFIX):
        return named(recipient.removeprefix(PUSH_PREFIX))
    local, _, domain = recipient.rpartition("@")
    return named(local.lower()) if domain.lower() == EMAIL_DOMAIN else ACCEPT
