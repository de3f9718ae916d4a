"""From an outcome to what is recorded: the one place that matches outcomes, exhaustively."""

from dataclasses import dataclass
from typing import assert_never

from app.db.deliveries import THROTTLED_LIMIT, Recordable
from app.domain.kinds import Priority
from app.domain.retry import RetryPolicy, delay_seconds
from app.services.deliver.work import Finished
from app.settings import Settings
from providers.outcome import Accepted, Misconfigured, Outcome, Rejected, Retry, Scope, Throttled, Unknown

_DETAIL_LENGTH = 500
_ABOUT_ONE_MESSAGE = frozenset({Scope.MESSAGE, Scope.RECIPIENT, Scope.DOMAIN})


@dataclass(frozen=True, slots=True)
class Rules:
    """What a decision needs to know of the installation. Durations in seconds."""

    retry: RetryPolicy
    unknown_window_high_seconds: float
    unknown_window_seconds: float
    misconfigured_hold_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> "Rules":
        """Return the rules that `settings` ask for."""
        return cls(
            retry=RetryPolicy(settings.retry_base_seconds, settings.retry_cap_seconds, settings.retry_jitter),
            unknown_window_high_seconds=settings.unknown_window_high_seconds,
            unknown_window_seconds=settings.unknown_window_seconds,
            misconfigured_hold_seconds=settings.misconfigured_hold_seconds,
        )


def decide(finished: Finished, provider: str, priority: Priority, rules: Rules) -> Recordable:
    """Return what to record of a finished call.

    A call counts as an attempt whatever came of it. A throttled or misconfigured one adds an attempt to what is
    allowed, so that it uses up nothing of the message's budget. A `delay_seconds` of None gives it up.
    """
    work, outcome = finished.work, finished.outcome
    done = Recordable(
        work.id,
        work.token,
        "accepted",
        provider,
        started=work.started,
        duration_ms=int((finished.ended - work.started) * 1000),
    )
    number = work.attempts + 1
    match outcome:
        case Accepted():
            done.message_id = _clean(outcome.message_id)
            done.is_final = outcome.is_final
            return done
        case Retry():
            done.outcome = "retry"
            done.delay_seconds = delay_seconds(number, work.allowed, rules.retry, outcome.retry_after_seconds)
        case Throttled():
            done.outcome = "throttled"
            done.extra = 1 if work.allowed < THROTTLED_LIMIT else 0
            allowed = work.allowed + done.extra
            done.delay_seconds = delay_seconds(number, allowed, rules.retry, outcome.retry_after_seconds)
        case Rejected():
            done.outcome = "rejected"
        case Misconfigured():
            done.outcome = "misconfigured"
            done.extra = 1 if work.allowed < THROTTLED_LIMIT else 0
            is_last = number >= work.allowed + done.extra
            done.delay_seconds = None if is_last else rules.misconfigured_hold_seconds
        case Unknown():
            done.outcome = "unknown"
            is_high = priority is Priority.HIGH
            done.delay_seconds = rules.unknown_window_high_seconds if is_high else rules.unknown_window_seconds
        case _:
            assert_never(outcome)
    done.code = _clean(outcome.code)
    done.detail = _clean(outcome.reason)
    return done


def is_provider_failure(outcome: Outcome) -> bool:
    """Tell whether an outcome speaks against the provider itself, not about one message or recipient."""
    if isinstance(outcome, Retry):
        return outcome.scope not in _ABOUT_ONE_MESSAGE
    return isinstance(outcome, Unknown) and outcome.scope not in _ABOUT_ONE_MESSAGE


def pause_seconds(outcome: Outcome, rules: Rules) -> float:
    """Return for how long nobody should call this provider because of `outcome`; 0 for most."""
    if isinstance(outcome, Throttled) and outcome.scope not in _ABOUT_ONE_MESSAGE:
        return min(outcome.retry_after_seconds or 1.0, rules.retry.retry_after_cap_seconds)
    if isinstance(outcome, Misconfigured):
        return min(rules.misconfigured_hold_seconds, 30.0)
    return 0.0


def _clean(text: str | None) -> str | None:
    """PostgreSQL takes no NUL and no lone surrogate in text; a provider may send either."""
    if text is None:
        return None
    short = text[:_DETAIL_LENGTH]
    if short.isascii() and "\x00" not in short:
        return short
    return short.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def outcome_name(outcome: Outcome) -> str:
    """Return the name of an outcome, as in `attempt.outcome` and in the metrics."""
    return _NAMES[type(outcome)]


_NAMES: dict[type, str] = {
    Accepted: "accepted",
    Retry: "retry",
    Throttled: "throttled",
    Rejected: "rejected",
    Misconfigured: "misconfigured",
    Unknown: "unknown",
}
