"""What outcomes tell beside the row: the breaker, pauses of a whole provider, and metrics, by batch."""

from collections import Counter
from collections.abc import Sequence

from redis.exceptions import RedisError

from app.limits.breaker import Breaker
from app.limits.rate import RateLimiter
from app.observability import metrics
from app.observability.batches import observe_many
from app.observability.logging import get_logger
from app.services.deliver.decide import Rules, is_provider_failure, outcome_name, pause_seconds
from app.services.deliver.lane import Lane
from app.services.deliver.work import Finished, Work
from providers.outcome import Accepted, Misconfigured, Outcome, Retry

log = get_logger(__name__)


class Feedback:
    """Tells the limits what the provider answered. Redis that cannot be reached loses a hint, nothing more."""

    def __init__(self, breaker: Breaker, rate: RateLimiter, rules: Rules) -> None:
        self._breaker = breaker
        self._rate = rate
        self._rules = rules

    def tell(self, batch: Sequence[tuple[Lane, Finished]]) -> None:
        """Report the outcomes of a batch, provider by provider."""
        lanes: dict[Lane, list[Finished]] = {}
        for lane, finished in batch:
            lanes.setdefault(lane, []).append(finished)
        for lane, calls in lanes.items():
            self._count(lane, calls)
            try:
                probes = [call for call in calls if call.work.is_probe]
                if probes:
                    self._report(lane, probes, is_probe=True)
                    self._report(lane, [call for call in calls if not call.work.is_probe], is_probe=False)
                else:
                    self._report(lane, calls, is_probe=False)
                self._pause(lane, [call for call in calls if type(call.outcome) is not Accepted])
            except RedisError:
                log.warning("breaker_unreachable", provider=lane.provider.name)

    def unsent(self, lane: Lane, work: Sequence[Work]) -> None:
        """Give the probes back that came to no call."""
        probes = sum(item.is_probe for item in work)
        if probes:
            try:
                self._breaker.give_back(lane.provider.name, probes)
            except RedisError:
                log.warning("breaker_unreachable", provider=lane.provider.name)

    def _report(self, lane: Lane, calls: Sequence[Finished], *, is_probe: bool) -> None:
        if not calls:
            return
        ok = failed = refused = silent = 0
        for call in calls:
            outcome = call.outcome
            if type(outcome) is Accepted:
                ok += 1
                continue
            if isinstance(outcome, Misconfigured):
                silent += 1
            elif not is_provider_failure(outcome):
                ok += 1
            elif isinstance(outcome, Retry) and outcome.refused_connection:
                refused += 1
            else:
                failed += 1
        name = lane.provider.name
        if is_probe and silent:
            self._breaker.give_back(name, silent)
        if ok or failed or refused:
            probes = len(calls) - silent if is_probe else 0
            self._breaker.report(name, ok, failed, refused, probes)

    def _pause(self, lane: Lane, calls: Sequence[Finished]) -> None:
        if not calls:
            return
        seconds, outcome = max(
            ((pause_seconds(call.outcome, self._rules), call.outcome) for call in calls), key=_first
        )
        if not seconds:
            return
        self._rate.pause(lane.provider.name, lane.key.channel, seconds)
        if isinstance(outcome, Misconfigured):
            log.error(
                "provider_misconfigured", provider=lane.provider.name, code=outcome.code, paused_seconds=seconds
            )
        else:
            log.info("provider_throttles", provider=lane.provider.name, paused_seconds=seconds)

    def _count(self, lane: Lane, calls: Sequence[Finished]) -> None:
        channel, priority = lane.key.channel.value, lane.key.priority.name
        outcomes = Counter([outcome_name(call.outcome) for call in calls])
        observe_many(
            metrics.SEND_SECONDS.labels(channel, lane.provider.name),
            [call.ended - call.work.started for call in calls],
        )
        observe_many(
            metrics.END_TO_END_SECONDS.labels(channel, priority),
            [call.ended - call.work.due_at for call in calls if call.work.attempts == 0],
        )
        for outcome, count in outcomes.items():
            metrics.SENT.labels(channel, lane.provider.name, outcome, priority).inc(count)


def _first(pair: tuple[float, Outcome]) -> float:
    return pair[0]
