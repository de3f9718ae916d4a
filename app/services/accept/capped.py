"""Accepting under a frequency cap: the decision is made inside the transaction that stores.

A first statement takes the turn of the person and category and counts; only then is the plan made, so the answer
that is stored says what was really decided. HIGH is never capped.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from app.db import frequency
from app.db.frequency import Counted
from app.db.requests import Cursor
from app.domain.frequency import FrequencyCap
from app.domain.kinds import Channel, Priority
from app.domain.users import KnownUser
from app.services.accept.plan import Plan, plan
from app.services.accept.submission import Submission


class CapCount:
    """What the people of some submissions have had already; it counts on as plans are made.

    Made inside a transaction, whose end ends its turns.
    """

    def __init__(
        self, cursor: Cursor, tenant_id: str, submissions: Sequence[Submission], caps: Mapping[str, FrequencyCap]
    ) -> None:
        self._cursor = cursor
        self._tenant_id = tenant_id
        self._caps = caps
        wanted = {
            Counted(each.user_id, each.category, cap.window_seconds)
            for each in submissions
            if (cap := cap_of(each, caps.get(each.category))) is not None
        }
        self._used: Counter[tuple[str, str]] = Counter(
            frequency.take_turns_and_count(cursor, tenant_id, wanted) if wanted else {}
        )
        self._hits: list[tuple[Counted, str]] = []

    def plan(self, submission: Submission, user: KnownUser | None) -> Plan:
        """Return the plan, without the capped channels where the person has had enough."""
        cap = cap_of(submission, self._caps.get(submission.category))
        if cap is None:
            return plan(submission, user)
        is_full = self._used[submission.user_id, submission.category] >= cap.most
        made = plan(submission, user, cap.channels if is_full else ())
        if _counts(made, cap.channels):
            self._used[submission.user_id, submission.category] += 1
        return made

    def stored(self, submission: Submission, made: Plan, identifier: str) -> None:
        """Say under which id a plan was stored."""
        cap = cap_of(submission, self._caps.get(submission.category))
        if cap is not None and _counts(made, cap.channels):
            counted = Counted(submission.user_id, submission.category, cap.window_seconds)
            self._hits.append((counted, identifier))

    def note(self) -> None:
        """Write down what was stored, for those who count next."""
        frequency.note(self._cursor, self._tenant_id, self._hits)


def cap_of(submission: Submission, cap: FrequencyCap | None) -> FrequencyCap | None:
    """Return the cap that holds for a submission, if any does."""
    if cap is None or submission.priority is Priority.HIGH or not cap.channels & set(submission.all_channels):
        return None
    return cap


def _counts(made: Plan, channels: Collection[Channel]) -> bool:
    return any(each.channel in channels for each in made.deliveries)
