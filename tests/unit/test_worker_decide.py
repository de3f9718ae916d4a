"""From outcomes to records: the budget of attempts, pauses, and what speaks against a provider."""

import pytest
from prometheus_client import CollectorRegistry, Histogram

from app.db.deliveries import THROTTLED_LIMIT
from app.domain.kinds import Priority
from app.domain.retry import RetryPolicy
from app.observability.batches import observe_many
from app.services.deliver.decide import Rules, decide, is_provider_failure, outcome_name, pause_seconds
from app.services.deliver.work import Finished, Work
from providers.base import Message
from providers.outcome import Accepted, Misconfigured, Rejected, Retry, Scope, Throttled, Unknown

RULES = Rules(RetryPolicy(), 60.0, 900.0, 300.0)


def decided(outcome, *, attempts=0, allowed=6, priority=Priority.LOW):
    work = Work("i", attempts, allowed, Message("i", "r", "t", "b"), 0.0, 0.0, started=10.0)
    return decide(Finished(work, outcome, 10.25), "p", priority, RULES)


def test_an_accepted_call_carries_its_id_and_duration():
    """Milliseconds, from the fence to the answer."""
    record = decided(Accepted("m1"))
    assert (record.outcome, record.message_id, record.duration_ms, record.delay_seconds) == (
        "accepted",
        "m1",
        250,
        None,
    )


def test_a_retry_is_given_up_after_the_last_attempt_that_is_allowed():
    """The sixth call of six was the last."""
    assert decided(Retry("503", "busy"), attempts=4).delay_seconds is not None
    assert decided(Retry("503", "busy"), attempts=5).delay_seconds is None


def test_a_throttled_call_never_ends_a_message_by_itself_but_does_not_go_on_for_ever():
    """It adds the attempt that it used, up to a bound."""
    record = decided(Throttled("429", "slow"), attempts=5, allowed=6)
    assert (record.extra, record.delay_seconds is None) == (1, False)
    last = decided(Throttled("429", "slow"), attempts=THROTTLED_LIMIT - 1, allowed=THROTTLED_LIMIT)
    assert (last.extra, last.delay_seconds) == (0, None)


@pytest.mark.parametrize("asked", [30.0, 120.0])
def test_the_wait_that_a_provider_asks_for_is_a_floor(asked):
    """Case I03. Jitter only lengthens it."""
    assert asked <= decided(Throttled("429", "slow", asked)).delay_seconds <= asked * 1.25


def test_a_misconfigured_provider_holds_the_message_and_pauses_everybody():
    """Nothing of the message's budget is used; an operator has to act."""
    outcome = Misconfigured("401", "wrong token")
    record = decided(outcome, attempts=5, allowed=6)
    assert (record.delay_seconds, record.extra) == (300.0, 1)
    last = decided(outcome, attempts=THROTTLED_LIMIT - 1, allowed=THROTTLED_LIMIT)
    assert (last.delay_seconds, last.extra) == (None, 0), "even a fault that nobody mends comes to an end"
    assert pause_seconds(outcome, RULES) == 30.0


@pytest.mark.parametrize(("priority", "window"), [(Priority.HIGH, 60.0), (Priority.NORMAL, 900.0)])
def test_an_ambiguous_call_waits_for_its_window(priority, window):
    """A shorter one for HIGH."""
    assert decided(Unknown("timeout", "no answer"), priority=priority).delay_seconds == window


@pytest.mark.parametrize(
    ("outcome", "is_failure"),
    [
        (Accepted(None), False),
        (Rejected("gone", "x"), False),
        (Throttled("429", "x"), False),
        (Retry("503", "x"), True),
        (Retry("450", "x", scope=Scope.RECIPIENT), False),
        (Retry("421", "x", scope=Scope.DOMAIN), False),
        (Unknown("timeout", "x"), True),
        (Unknown("timeout", "x", scope=Scope.MESSAGE), False),
    ],
)
def test_only_what_concerns_the_provider_counts_against_it(outcome, is_failure):
    """An answer about one recipient does not open the breaker."""
    assert is_provider_failure(outcome) is is_failure
    assert outcome_name(outcome) == type(outcome).__name__.lower()


@pytest.mark.parametrize("text", ["a\x00b", "a\ud83d", "é" * 600])
def test_what_a_provider_says_can_always_be_stored(text):
    """Case G15. PostgreSQL takes neither NUL nor a lone surrogate; the length is bounded."""
    detail = decided(Retry("x", text)).detail
    assert detail.encode()
    assert "\x00" not in detail
    assert len(detail) <= 500


def test_observing_many_equals_observing_each():
    """The pinned client's internals still mean what `observe` does with them."""
    values = [0.0, 0.1, 0.1, 0.25, 0.99, 5.0]
    results = []
    for is_batch in (True, False):
        registry = CollectorRegistry()
        histogram = Histogram("h", "h", ("l",), buckets=(0.1, 0.25, 1.0), registry=registry).labels("x")
        if is_batch:
            observe_many(histogram, values)
        else:
            for value in values:
                histogram.observe(value)
        samples = [sample for metric in registry.collect() for sample in metric.samples]
        results.append({(s.name, tuple(s.labels.items())): s.value for s in samples if "created" not in s.name})
    assert results[0] == results[1]
