"""The table of SMTP replies, read as data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.email.smtp_status import Phase, verdict_of
from providers.outcome import Scope
from providers.verdict import Meaning

PERMANENT = {Meaning.REJECTED, Meaning.GONE, Meaning.MISCONFIGURED}


@given(st.sampled_from(Phase), st.integers(500, 599), st.text(max_size=40))
def test_5yz_is_never_tried_again(phase, code, text):
    """Case G07. Whatever the text and the phase."""
    assert verdict_of(phase, code, text).meaning in PERMANENT


@given(st.sampled_from([phase for phase in Phase if phase is not Phase.LOGIN]), st.integers(400, 499))
def test_4yz_is_never_final(phase, code):
    """Case G07. A temporary answer never costs the message or the address."""
    assert verdict_of(phase, code, "4.0.0 later").meaning in {Meaning.RETRY, Meaning.THROTTLED}


@given(
    st.sampled_from(Phase), st.integers(400, 599), st.sampled_from(["5.2.1", "5.7.1", "5.1.8", "5.0.0", "4.1.1"])
)
def test_only_mailbox_codes_say_that_an_address_is_dead(phase, code, enhanced):
    """Case G07. Nothing else may feed the suppression of an address."""
    assert verdict_of(phase, code, f"{enhanced} text").meaning is not Meaning.GONE


@pytest.mark.parametrize("enhanced", ["5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"])
@pytest.mark.parametrize("phase", [Phase.RECIPIENT, Phase.BODY])
def test_mailbox_codes_say_so(phase, enhanced):
    """Case G07. At RCPT, and at the end of the message, which had one recipient."""
    verdict = verdict_of(phase, 550, f"{enhanced} no such user")
    assert (verdict.meaning, verdict.scope) == (Meaning.GONE, Scope.RECIPIENT)


def test_basic_code_beats_the_enhanced_class():
    """RFC 5321, 4.2.1: `450 5.1.1` is temporary."""
    assert verdict_of(Phase.RECIPIENT, 450, "5.1.1 later").meaning is Meaning.RETRY


@pytest.mark.parametrize(
    ("phase", "code", "text", "scope"),
    [
        (Phase.SENDER, 421, "4.7.0 rate limit exceeded", Scope.ACCOUNT),
        (Phase.DATA, 454, "Throttling failure: Maximum sending rate exceeded.", Scope.ACCOUNT),
        (Phase.RECIPIENT, 450, "4.7.0 too many messages", Scope.DOMAIN),
        (Phase.RECIPIENT, 450, "4.2.1 receiving mail at a rate that prevents delivery", Scope.RECIPIENT),
    ],
)
def test_throttling_has_the_scope_of_what_is_too_fast(phase, code, text, scope):
    """A recipient that gets too much mail must not slow the whole account."""
    verdict = verdict_of(phase, code, text)
    assert (verdict.meaning, verdict.scope) == (Meaning.THROTTLED, scope)


def test_strange_reply_after_the_message_is_unknown_and_before_it_a_retry():
    """A 3yz or 1yz after the body does not say whether it was taken."""
    assert verdict_of(Phase.BODY, 354, "what").meaning is Meaning.UNKNOWN
    assert verdict_of(Phase.SENDER, 354, "what").meaning is Meaning.RETRY
