"""When to try again: a pure function over data, the only place that knows about back-off."""

from collections.abc import Callable
from dataclasses import dataclass
from random import random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with jitter. Durations in seconds."""

    base_seconds: float = 2.0
    cap_seconds: float = 300.0
    jitter: float = 0.25
    retry_after_cap_seconds: float = 3600.0


def delay_seconds(
    attempts: int,
    allowed: int,
    policy: RetryPolicy,
    retry_after_seconds: float | None = None,
    draw: Callable[[], float] = random,
) -> float | None:
    """Return how long to wait after call number `attempts` failed, or None to give up.

    The jitter is applied before the cap, so no wait is longer than the cap. A `retry_after_seconds` of the
    provider is a floor, clamped to [0, retry_after_cap_seconds]; jitter may only lengthen it.
    """
    if attempts >= allowed:
        return None
    exponent = min(max(attempts, 1) - 1, 32)
    spread = 1.0 + policy.jitter * (2.0 * draw() - 1.0)
    wait = min(policy.base_seconds * 2.0**exponent * spread, policy.cap_seconds)
    if retry_after_seconds is None:
        return wait
    asked = min(max(retry_after_seconds, 0.0), policy.retry_after_cap_seconds)
    return max(wait, asked * (1.0 + policy.jitter * draw()))
