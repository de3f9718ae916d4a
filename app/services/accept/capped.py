"""Accepting under a frequency cap: the decision is made inside the transaction that stores.

A first statement takes the turn of the person and category and counts; only then is the plan made, so the answer
that is stored says what was really decided. HIGH and mandatory categories are never capped.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from app.db import frequency
from app.db.accept_context import Known
from app.db.frequency import Counted
from app.db.requests import Cursor
from app.domain.frequency import FrequencyCap
from app.domain.kinds import Channel, Priority
from app.services.accept.deciding import Prepared
from app.services.accept.plan import Plan
from app.services.accept.submission import Submission


class CapCount:
    """What the people of some submissions have had already; it counts on as plans are made.

    Made inside a transaction, whose end ends its turns; without turns it only looks.
    """

    def __init__(
        self, cursor: Cursor, tenant_id: str, prepared: Sequence[Prepared], *, takes_turns: bool = True
    ) -> None:
        self._cursor = cursor
        self._tenant_id = tenant_id
        wanted = {
            Counted(each.submission.user_id, each.submission.category, cap.window_seconds)
            for each in prepared
            if (cap := cap_of(each.submission, each.known)) is not None
        }
        count = frequency.take_turns_and_count if takes_turns else frequency.count
        self._used: Counter[tuple[str, str]] = Counter(count(cursor, tenant_id, wanted) if wanted else {})
        self._hits: list[tuple[Counted, str]] = []

    def plan(self, prepared: Prepared) -> Plan:
        """Return the plan, without the capped channels where the person has had enough; raise Refused."""
        submission = prepared.submission
        cap = cap_of(submission, prepared.known)
        if cap is None:
            return prepared.plan()
        is_full = self._used[submission.user_id, submission.category] >= cap.most
        made = prepared.plan(cap.channels if is_full else ())
        if _counts(made, cap.channels):
            self._used[submission.user_id, submission.category] += 1
        return made

    def stored(self, prepared: Prepared, made: Plan, identifier: str) -> None:
        """Say under which id a plan was stored."""
        submission = prepared.submission
        cap = cap_of(submission, prepared.known)
        if cap is not None and _counts(made, cap.channels):
            counted = Counted(submission.user_id, submission.category, cap.window_seconds)
            self._hits.append((counted, identifier))

    def note(self) -> None:
        """Write down what was stored, for those who count next."""
        frequency.note(self._cursor, self._tenant_id, self._hits)


def cap_of(submission: Submission, known: Known) -> FrequencyCap | None:
    """Return the cap that holds for a submission, if any does."""
    cap = known.cap
    if cap is None or submission.priority is Priority.HIGH or known.around.category.is_mandatory:
        return None
    return cap if cap.channels & set(submission.all_channels) else None


def _counts(made: Plan, channels: Collection[Channel]) -> bool:
    return any(each.channel in channels for each in made.deliveries)
