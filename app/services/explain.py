"""Explain: what would become of a notification, and which rule decides each channel. Nothing is stored or sent.

It is the accept's own decision, not a copy of it; what it cannot know is how the mind of the person, or the
tenant's rules, change until the send.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from app.domain.instants import instant
from app.domain.kinds import Channel
from app.domain.summary import NotificationStatus
from app.services.accept.accept import Accept
from app.services.accept.submission import Submission


class Explain:
    """The use case. `providers` names the provider of each channel."""

    def __init__(self, accept: Accept, providers: Mapping[Channel, str]) -> None:
        self._accept = accept
        self._providers = providers

    def __call__(self, tenant_id: str, submission: Submission) -> dict[str, Any]:
        """Return what would become of a submission; raise Refused where accepting it would."""
        submission, made = self._accept.explain(tenant_id, submission)
        now = datetime.now(UTC)
        due_at = now if submission.scheduled_at is None else max(submission.scheduled_at, now)
        expires_at = None if submission.expires_in is None else due_at + timedelta(seconds=submission.expires_in)
        local = submission.scheduled_local
        return {
            "status": NotificationStatus.ACCEPTED if made.deliveries else NotificationStatus.SUPPRESSED,
            "scheduled_at": None if submission.scheduled_at is None else instant(submission.scheduled_at),
            "scheduled_local": None if local is None else local.stored(),
            "expires_at": None if expires_at is None else instant(expires_at),
            "channels": [self._channel(record, due_at, expires_at) for record in made.decision],
        }

    def _channel(self, record: dict[str, Any], due_at: datetime, expires_at: datetime | None) -> dict[str, Any]:
        if record["verdict"] == "suppress":
            return {**record, "provider": None, "at": None, "will_expire": False}
        until = record.get("until")
        at = due_at if until is None else datetime.fromisoformat(until)
        return {
            **record,
            "provider": self._providers[Channel(record["channel"])],
            "at": instant(at),
            "will_expire": expires_at is not None and at >= expires_at,
        }
