"""The state machine: the table against the protocol's, edge by edge, and what any path through it may do."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.states import OPEN, TERMINAL, TRANSITIONS, DeliveryState, edges

PENDING, QUEUED, SENDING, SENT, DELIVERED, FAILED, UNKNOWN, CANCELLED, EXPIRED = DeliveryState

PROTOCOL = {
    PENDING: {QUEUED, SENDING, FAILED, CANCELLED, EXPIRED, DELIVERED},
    QUEUED: {PENDING, SENDING, FAILED, CANCELLED, EXPIRED, DELIVERED},
    SENDING: {SENT, DELIVERED, PENDING, FAILED, UNKNOWN, CANCELLED, EXPIRED},
    UNKNOWN: {SENT, PENDING, FAILED, CANCELLED, EXPIRED, DELIVERED},
    SENT: {DELIVERED, FAILED},
    FAILED: {PENDING, DELIVERED},
    CANCELLED: {DELIVERED},
    EXPIRED: {DELIVERED},
    DELIVERED: set(),
}
"""The edges of docs/protocol, written down a second time on purpose."""


def test_the_edges_are_those_of_the_protocol():
    """Not one edge more or less than the checked model has."""
    assert edges() == {(source, target) for source, targets in PROTOCOL.items() for target in targets}


def test_every_verb_says_who_takes_it_and_every_state_says_who_moves_it_on():
    """No verb is empty, each has an actor, and every open state can be left by more than the user."""
    for name, verb in TRANSITIONS.items():
        assert verb.source, name
        assert verb.target, name
        assert verb.actor in {"relay", "worker", "rescue", "resolver", "user", "sweeper", "receipt", "operator"}
    for state in OPEN:
        assert {verb.actor for verb in TRANSITIONS.values() if state in verb.source} - {"user", "receipt"}
    assert set(DeliveryState) == OPEN | TERMINAL
    assert not OPEN & TERMINAL


def test_a_call_begins_only_by_a_claim():
    """SENDING means that a call may have begun: only the claim leads there, and never from UNKNOWN."""
    assert [name for name, verb in TRANSITIONS.items() if SENDING in verb.target] == ["claim"]
    assert TRANSITIONS["claim"].source == {PENDING, QUEUED}


def test_what_may_have_been_sent_is_never_put_back_by_a_rescue():
    """Fails under the mutation "rescue SENDING to PENDING": a lost worker's row becomes UNKNOWN."""
    assert PENDING not in TRANSITIONS["rescue_sending"].target
    assert UNKNOWN in TRANSITIONS["rescue_sending"].target
    assert not TRANSITIONS["rescue_sending"].allows(QUEUED, UNKNOWN)


def test_users_and_sweepers_never_touch_a_row_that_may_be_in_a_call():
    """Fails under the mutation "cancel straight from SENDING"."""
    for name in ("cancel", "supersede", "expire", "defer", "publish", "reject_unrenderable"):
        assert not TRANSITIONS[name].source & {SENDING, UNKNOWN}, name


@given(st.data())
def test_no_path_moves_a_delivered_row_and_every_open_row_can_end(data):
    """Any walk over the verbs: DELIVERED is left by nothing, and every open state has an edge to an end."""
    state = PENDING
    for _ in range(data.draw(st.integers(0, 30))):
        verbs = [verb for verb in TRANSITIONS.values() if state in verb.source]
        if not verbs:
            break
        verb = data.draw(st.sampled_from(verbs))
        target = data.draw(st.sampled_from(sorted(verb.target)))
        assert verb.allows(state, target)
        state = target
    if state is DELIVERED:
        assert not [verb for verb in TRANSITIONS.values() if state in verb.source]
    if state in OPEN:
        assert PROTOCOL[state] & TERMINAL
