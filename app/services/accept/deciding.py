"""The decision about one submission, the same for a single request, for many, and for a recipient of a batch.

It reads nothing: what is known was read before (`app.db.accept_context`), the version of a template is at hand.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from app.db.accept_context import Asked, Known
from app.domain.kinds import Channel
from app.domain.zones import instant
from app.rendering.library import Library, Version
from app.sealing import Vault
from app.services.accept.plan import Plan, explicit, plan
from app.services.accept.submission import Submission
from app.services.accept.writing import Writing
from app.services.recipients import INDEX_KINDS
from app.services.refusal import Problem, Refused


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission with its time as an instant and what it says, and what is known of it."""

    submission: Submission
    known: Known
    due_at: datetime

    @property
    def may_change_inbox(self) -> bool:
        """Whether storing it may bring something into the user's inbox, or take something out of it."""
        return self.submission.supersede_key is not None or Channel.IN_APP in self.submission.all_channels

    def plan(self, capped: Collection[Channel] = ()) -> Plan:
        """Return the plan; raise Refused."""
        return plan(self.submission, self.known.user, self.known.around, self.due_at, capped)


class Deciding:
    """Decides. Holds no state between calls."""

    def __init__(self, vault: Vault, library: Library, schedule_max_days: int) -> None:
        self._vault = vault
        self._writing = Writing(library)
        self._horizon = timedelta(days=schedule_max_days)

    def asked(self, tenant_id: str, submission: Submission) -> Asked:
        """Return what is to be looked up for a submission."""
        indexes = {
            channel: self._vault.index(tenant_id, INDEX_KINDS[channel], address)
            for channel, address in explicit(submission).items()
        }
        return Asked(submission.user_id, submission.category, indexes, submission.template)

    def prepare(
        self,
        submission: Submission,
        known: Known,
        version: Version | None,
        *,
        check_all: bool,
        is_written: bool = False,
    ) -> Prepared:
        """Return the submission ready to be planned; raise Refused.

        What is written already (`shared`) is not gone through again.
        """
        if submission.scheduled_local is not None:
            submission = _with_instant(submission, known)
        if not is_written:
            self._check(submission)
        if submission.template is None:
            submission = submission if is_written else self._writing.inline(submission)
        else:
            submission = self._writing.templated(submission, version, known.user, check_all=check_all)
        now = datetime.now(UTC)
        due_at = now if submission.scheduled_at is None else max(submission.scheduled_at, now)
        return Prepared(submission, known, due_at)

    def shared(self, submission: Submission, version: Version | None) -> Submission:
        """Return what all notifications of a batch have in common, checked and written; raise Refused."""
        self._check(submission)
        if submission.template is None:
            return self._writing.inline(submission)
        if version is None:
            raise Refused(
                "DOMAIN_TEMPLATE_NOT_FOUND", "There is no such template.", [Problem("template", "does not exist")]
            )
        return replace(submission, template_version=version.number)

    def _check(self, submission: Submission) -> None:
        """Raise Refused for what can never be delivered, whoever it is for."""
        if submission.scheduled_at is not None and submission.scheduled_at > datetime.now(UTC) + self._horizon:
            raise Refused(
                "DOMAIN_SCHEDULE_TOO_FAR",
                f"A notification can be scheduled at most {self._horizon.days} days ahead.",
                [Problem("scheduled_at", f"must be within {self._horizon.days} days")],
            )


def _with_instant(submission: Submission, known: Known) -> Submission:
    """Return the submission with its wall time in a zone and as an instant."""
    local = submission.scheduled_local
    assert local is not None
    zone = known.around.zone(local.time_zone, known.user.time_zone if known.user else None)
    placed = replace(local, time_zone=zone.key)
    return replace(submission, scheduled_local=placed, scheduled_at=instant(local.at, zone))
