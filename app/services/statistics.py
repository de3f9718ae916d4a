"""Statistics: how many notifications, by status, channel, category and day of acceptance (UTC)."""

from datetime import UTC, datetime, timedelta
from typing import Any

from app.db import stats
from app.db.requests import RequestPool
from app.db.stats import TooMuchToCountError
from app.domain.ids import first_id_at
from app.domain.instants import instant
from app.services.refusal import Problem, Refused

DAYS_LIMIT = 90
DAYS = 7
TENANT_SECONDS = 3.0
"""How long the count of a whole tenant may take: some million notifications."""


class Statistics:
    """The use case."""

    def __init__(self, pool: RequestPool) -> None:
        self._pool = pool

    def __call__(
        self, tenant_id: str, user_id: str | None, since: datetime | None, until: datetime | None
    ) -> dict[str, Any]:
        """Return the sums of what was accepted from `since` on and before `until`: a week up to now unless told.

        `by_channel` counts deliveries, the others notifications; what was deleted is in none of them. Raises
        Refused for a range that is empty, longer than 90 days, or holds too much to be counted.
        """
        until = until or datetime.now(UTC)
        since = since or until - timedelta(days=DAYS)
        if not since < until <= since + timedelta(days=DAYS_LIMIT):
            raise Refused(
                "DOMAIN_RANGE_INVALID",
                f"`from` is before `to`, by {DAYS_LIMIT} days at most.",
                [Problem("from", f"must be before `to` by at most {DAYS_LIMIT} days")],
            )
        values = {
            "tenant_id": tenant_id,
            "user_id": user_id,
            "low": str(first_id_at(since)),
            "before": str(first_id_at(until)),
            "timeout_ms": int(TENANT_SECONDS * 1000),
        }
        try:
            rows = self._pool.run(lambda cursor: stats.count(cursor, values))
        except TooMuchToCountError as error:
            raise Refused(
                "DOMAIN_RANGE_TOO_LARGE",
                "The range holds too much to be counted at once: ask for fewer days, or for one user.",
                [Problem("from", "must be nearer to `to`")],
            ) from error
        sums: dict[str, dict[str, int]] = {"status": {}, "channel": {}, "category": {}, "day": {}, "total": {}}
        for kind, key, number in sorted(rows):
            sums[kind][key] = number
        return {
            "from": instant(since),
            "to": instant(until),
            "total": sums["total"][""],
            "by_status": sums["status"],
            "by_channel": sums["channel"],
            "by_category": sums["category"],
            "by_day": sums["day"],
        }
