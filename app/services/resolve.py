"""The resolver: what becomes of UNKNOWN rows when nothing was heard within their window.

The policy of the channel and priority decides between sending again, which may double, and FAILED `uncertain`,
which may lose; both are shown by the API. Sent again is only what still may be: attempts left, not past its
deadline, not called off.
"""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy.engine import Engine

from app.db import recovery
from app.domain.kinds import Channel, Priority
from app.domain.uncertainty import Policy
from app.observability import metrics
from app.observability.logging import get_logger
from app.settings import Settings

log = get_logger(__name__)

BATCH = 500


class Resolve:
    """Decides UNKNOWN rows. `resend` names the channels and priorities whose policy is to send again."""

    def __init__(self, engine: Engine, resend: Sequence[tuple[Channel, Priority]]) -> None:
        self._engine = engine
        self._resend = resend

    def run_once(self) -> int:
        """Decide what is due now, batch by batch; return how many rows."""
        total = 0
        while True:
            with self._engine.begin() as connection:
                decided = recovery.resolve(connection, BATCH, self._resend)
            total += len(decided)
            for status, count in Counter(status for _, status in decided).items():
                how = "resend" if status == "PENDING" else "hold"
                metrics.RESOLVED.labels(how).inc(count)
                log.info("uncertain_calls_decided", how=how, count=count)
            if len(decided) < BATCH:
                return total


def resend_pairs(settings: Settings) -> list[tuple[Channel, Priority]]:
    """Return where the policy of `settings` is to send again."""
    return [
        (channel, priority)
        for channel in Channel
        for priority in Priority
        if settings.policy(channel, priority) is Policy.RESEND
    ]
