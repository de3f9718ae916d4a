"""Claim and guard: granted work becomes SENDING, in one statement, and is handed to the event loop at once.

Whoever is not in the answer of the claim was claimed, cancelled, deferred or expired by someone else meanwhile: a
counted no-op. A guard that refuses, or cannot be asked, means that no call is made: the claim is given back.
"""

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

from redis.exceptions import RedisError

from app.db import deliveries
from app.db.steady import SteadyConnections
from app.limits.guard import Guard
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.deliver.lane import Lane
from app.services.deliver.work import Parked, Work

log = get_logger(__name__)

_TICK_SECONDS = 60.0
_GUARD_RETRY_SECONDS = 1.0
_REFUSED_RETRY_SECONDS = 5.0


class Claimer:
    """Claims granted work of one lane."""

    def __init__(
        self,
        lane: Lane,
        *,
        database: SteadyConnections,
        guard: Guard,
        owner: str,
        give_back_probes: Callable[[int], None],
        submit: Callable[[Lane, list[Work]], None],
        give_back: Callable[[Lane, list[Work], float, str], None],
    ) -> None:
        self._lane = lane
        self._database = database
        self._guard = guard
        self._owner = owner
        self._give_back_probes = give_back_probes
        self._submit = submit
        self._give_back = give_back

    def run(self) -> None:
        """Claim until the lane stops; the body of the claim thread."""
        lane = self._lane
        while not lane.stopped.is_set():
            if lane.granted.wait_filled(_TICK_SECONDS):
                work = lane.granted.take(lane.rules.batch)
                if work:
                    lane.attempt_step("claim", partial(self.claim, work), partial(self._park_again, work))

    def claim(self, work: Sequence[Work]) -> None:
        """Claim `work` and hand over what became ours. Raises SQLAlchemyError when the database did not answer."""
        lane = self._lane
        issued = monotonic()
        by_id = {item.id: item for item in work}
        rows = self._database.run(
            deliveries.claim,
            list(by_id),
            [item.attempts for item in by_id.values()],
            lane.provider.name,
            lane.rules.lease_seconds,
        )
        reserve = lane.provider.deadline_seconds + lane.rules.fence_margin_seconds
        mine: list[Work] = []
        for id_, token, lease_left, expiry_left in rows:
            item = by_id[id_]
            left = lease_left - reserve
            item.token = token
            fence = issued + (left if expiry_left is None else min(left, expiry_left))
            item.fence_until = min(fence, item.quiet_at)
            item.expires_at = None if expiry_left is None else issued + expiry_left
            mine.append(item)
        if len(mine) < len(work):
            self._drop(work, mine)
        guarded = self._guarded(mine)
        if guarded:
            self._submit(lane, guarded)

    def _return(self, work: list[Work], delay_seconds: float, reason: str) -> None:
        self._lane.window.release(len(work))
        self._give_back(self._lane, work, delay_seconds, reason)

    def _guarded(self, mine: list[Work]) -> list[Work]:
        if not mine:
            return mine
        claims = [(item.id, item.token) for item in mine]
        try:
            answers = self._guard.acquire(claims, self._owner, self._lane.rules.guard_seconds)
        except RedisError as error:
            log.warning("guard_unreachable", lane=str(self._lane.key), error=type(error).__name__, count=len(mine))
            self._return(mine, _GUARD_RETRY_SECONDS, "guard_unreachable")
            return []
        if all(answers):
            return mine
        refused = [item for item, is_taken in zip(mine, answers, strict=True) if not is_taken]
        metrics.GUARD_REFUSED.inc(len(refused))
        for item in refused:
            log.error("database_forgot_a_claim", delivery_id=item.id, lease_token=item.token)
        self._return(refused, _REFUSED_RETRY_SECONDS, "guard_refused")
        return [item for item, is_taken in zip(mine, answers, strict=True) if is_taken]

    def _drop(self, work: Sequence[Work], mine: Sequence[Work]) -> None:
        """Free the places of work that is not ours. A lost claim is a no-op of somebody else's success."""
        count = len(work) - len(mine)
        kept = {item.id for item in mine}
        probes = sum(item.is_probe for item in work if item.id not in kept)
        if probes:
            self._give_back_probes(probes)
        self._lane.window.release(count)
        metrics.CLAIM_LOST.labels(self._lane.key.priority.name).inc(count)
        log.debug("claims_lost", lane=str(self._lane.key), count=count)

    def _park_again(self, work: Sequence[Work]) -> None:
        """The claim may or may not have happened: the next load drops what it made SENDING."""
        self._lane.window.release(len(work))
        probes = sum(item.is_probe for item in work)
        if probes:
            self._give_back_probes(probes)
        self._lane.parking.put_back([Parked(item.id, item.parked_at) for item in work])
