"""What each SMTP reply means, by phase, code, enhanced code and text: data only, first match wins.

Only the mailbox codes 5.1.1, 5.1.2, 5.1.3, 5.1.6 and 5.1.10 say that the address is dead (RFC 3463, IANA); any
other 5yz refuses this message. A refusal of our login is never the recipient's fault. Where the basic code and
the enhanced class disagree, the basic code decides (RFC 5321, 4.2.1).
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from providers.outcome import Scope
from providers.verdict import Meaning, Verdict


class Phase(StrEnum):
    """How far a transaction had come."""

    POOL = "pool"
    """Waiting for a connection of ours to become free."""
    CONNECT = "connect"
    HELLO = "ehlo"
    TLS = "starttls"
    LOGIN = "auth"
    SENDER = "mail"
    RECIPIENT = "rcpt"
    DATA = "data"
    BODY = "body"
    """The message was handed to the connection: from here a lost answer leaves its fate unknown."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A verdict and when it holds; an empty condition always does."""

    verdict: Verdict
    phases: frozenset[Phase] = frozenset()
    codes: str = ""
    enhanced: str = ""
    text: str = ""

    def holds(self, phase: Phase, code: int, enhanced: str, text: str) -> bool:
        """Whether the rule is about this reply."""
        return (
            (not self.phases or phase in self.phases)
            and (not self.codes or re.fullmatch(self.codes, str(code)) is not None)
            and (not self.enhanced or re.fullmatch(self.enhanced, enhanced) is not None)
            and (not self.text or re.search(self.text, text) is not None)
        )


_OPENING = frozenset({Phase.CONNECT, Phase.HELLO})
_TLS = frozenset({Phase.TLS})
_LOGIN = frozenset({Phase.LOGIN})
_SENDER = frozenset({Phase.SENDER})
_RECIPIENT = frozenset({Phase.RECIPIENT})
_TOO_FAST = (
    r"(?i)too many (connections|concurrent|messages|recipients received)|rate limit|throttl"
    r"|exceeded the (maximum number|rate)|maximum sending rate|unusual rate|at a rate that"
)
_GREYLIST = r"(?i)gr[ea]ylist"


def _is(meaning: Meaning, code: str, scope: Scope = Scope.MESSAGE) -> Verdict:
    return Verdict(meaning, code, scope)


RULES: tuple[Rule, ...] = (
    Rule(_is(Meaning.MISCONFIGURED, "auth_refused", Scope.ACCOUNT), _LOGIN, "432|5.."),
    Rule(_is(Meaning.RETRY, "auth_unavailable", Scope.ACCOUNT), _LOGIN),
    Rule(_is(Meaning.RETRY, "tls_unavailable", Scope.PROVIDER), _TLS, "4.."),
    Rule(_is(Meaning.MISCONFIGURED, "tls_refused", Scope.PROVIDER), _TLS),
    Rule(_is(Meaning.MISCONFIGURED, "auth_required", Scope.ACCOUNT), codes="53[0458]"),
    Rule(_is(Meaning.MISCONFIGURED, "out_of_credits", Scope.ACCOUNT), codes="451", text="(?i)credits exceeded"),
    Rule(_is(Meaning.THROTTLED, "throttled", Scope.RECIPIENT), codes="4..", enhanced=r"4\.2\..*", text=_TOO_FAST),
    Rule(_is(Meaning.THROTTLED, "throttled", Scope.DOMAIN), _RECIPIENT, "4..", text=_TOO_FAST),
    Rule(_is(Meaning.THROTTLED, "rate_limited", Scope.ACCOUNT), codes="4..", text=_TOO_FAST),
    Rule(_is(Meaning.RETRY, "greylisted", Scope.DOMAIN), codes="4..", text=_GREYLIST),
    Rule(_is(Meaning.RETRY, "unavailable", Scope.PROVIDER), codes="421"),
    Rule(_is(Meaning.RETRY, "unavailable", Scope.PROVIDER), _OPENING, "4.."),
    Rule(_is(Meaning.MISCONFIGURED, "service_refused", Scope.PROVIDER), _OPENING),
    Rule(_is(Meaning.RETRY, "sender_deferred", Scope.SENDER), _SENDER, "4.."),
    Rule(_is(Meaning.RETRY, "mailbox_busy", Scope.RECIPIENT), codes="450"),
    Rule(_is(Meaning.RETRY, "no_storage", Scope.PROVIDER), codes="452"),
    Rule(_is(Meaning.RETRY, "deferred", Scope.RECIPIENT), _RECIPIENT, "4.."),
    Rule(_is(Meaning.RETRY, "deferred", Scope.PROVIDER), codes="4.."),
    Rule(_is(Meaning.REJECTED, "too_large"), codes="5..", enhanced=r"5\.3\.4|5\.2\.3"),
    Rule(_is(Meaning.REJECTED, "too_large"), _SENDER, "552"),
    Rule(_is(Meaning.REJECTED, "sender_refused", Scope.SENDER), _SENDER, "5.."),
    Rule(_is(Meaning.REJECTED, "sender_refused", Scope.SENDER), codes="5..", enhanced=r"5\.1\.[78]"),
    Rule(_is(Meaning.GONE, "recipient_gone", Scope.RECIPIENT), codes="5..", enhanced=r"5\.1\.([1236]|10)"),
    Rule(_is(Meaning.REJECTED, "mailbox_disabled", Scope.RECIPIENT), codes="5..", enhanced=r"5\.2\.1"),
    Rule(_is(Meaning.REJECTED, "mailbox_full", Scope.RECIPIENT), codes="5..", enhanced=r"5\.2\.2"),
    Rule(_is(Meaning.REJECTED, "policy"), codes="5..", enhanced=r"5\.7\..*"),
    Rule(_is(Meaning.REJECTED, "mailbox_full", Scope.RECIPIENT), _RECIPIENT, "552"),
    Rule(_is(Meaning.REJECTED, "too_large"), codes="552"),
    Rule(_is(Meaning.REJECTED, "recipient_refused", Scope.RECIPIENT), _RECIPIENT, "5.."),
    Rule(_is(Meaning.REJECTED, "message_refused"), codes="5.."),
)
UNREADABLE = _is(Meaning.UNKNOWN, "unexpected_reply", Scope.PROVIDER)
"""A reply that no rule knows, such as a 3yz or 1yz after the message: whether it was taken cannot be said."""
CONFUSED = _is(Meaning.RETRY, "unexpected_reply", Scope.PROVIDER)
"""The same before the message was handed over: surely not taken."""

_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")


def verdict_of(phase: Phase, code: int, text: str) -> Verdict:
    """Return what a reply that is no success means."""
    found = _ENHANCED.match(text)
    enhanced = found[1] if found else ""
    for rule in RULES:
        if rule.holds(phase, code, enhanced, text):
            return rule.verdict
    return UNREADABLE if phase is Phase.BODY else CONFUSED
