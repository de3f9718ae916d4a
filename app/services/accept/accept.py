"""Accept: the promise to deliver. One transaction stores the notification, its deliveries and the answer.

Nothing is published here (the relay does that from the table), so a broker that is down costs a request nothing.
A read comes first: whether the key was used before, and what is known of the user. The key is claimed in the
transaction that stores, so of two requests that both read "not used" one stores and the other finds its answer.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from app.db import accept_context, frequency, notifications
from app.db.accept_context import Known
from app.db.requests import Cursor, RequestPool
from app.db.transactions import transaction
from app.domain.frequency import FrequencyCap
from app.domain.kinds import Channel, Priority
from app.domain.users import KnownUser
from app.observability import metrics
from app.sealing import Vault
from app.services.accept.capped import CapCount, cap_of
from app.services.accept.plan import CAPPED, Plan, plan
from app.services.accept.rows import NOISE_BYTES, Rows, ids_of
from app.services.accept.submission import Answer, IdempotencyKey, Submission
from app.services.refusal import Problem, Refused

Nudge = Callable[[Priority], None]
"""Wakes the relay after a commit. Never raises and never blocks: the relay's own tick does the same, later."""

_TRIES = 3


@dataclass(frozen=True, slots=True)
class _Written:
    """Plans of many submissions, their ids in order, and the statement's own form of them."""

    plans: Sequence[Plan]
    identifiers: list[str]
    bulk: notifications.Bulk


class Accept:
    """The use case. Holds no state between calls."""

    def __init__(
        self, pool: RequestPool, vault: Vault, nudge: Nudge, *, attempts_allowed: int, schedule_max_days: int
    ) -> None:
        self._pool = pool
        self._rows = Rows(vault, attempts_allowed)
        self._nudge = nudge
        self._horizon = timedelta(days=schedule_max_days)

    def one(self, tenant_id: str, submission: Submission, key: IdempotencyKey) -> Answer:
        """Store one notification, or return what the key already stands for.

        Raises Refused when it cannot be done, or when the key belongs to another request. A connection that was
        lost before the answer is tried again on another: the key makes that safe, even if the first did commit.
        """
        asked = accept_context.Asked(submission.user_id, submission.category, key.route, key.key)
        known = self._pool.run(lambda cursor: accept_context.read(cursor, tenant_id, asked))
        if known.kept is not None:
            return _replayed(known.kept, key)
        self._check(submission)
        if cap_of(submission, known.cap) is None:
            made = plan(submission, known.user)
            row = self._rows.row(tenant_id, submission, made, key)
            stored, kept = self._pool.run(lambda cursor: _store_or_find(cursor, row))
        else:
            stored, kept, made = self._pool.run(
                lambda cursor: self._store_capped(cursor, tenant_id, submission, known, key)
            )
        if stored is not None:
            for each in made.deliveries:
                metrics.ACCEPTED.labels(each.channel, submission.priority.name).inc()
            _count_superseded(stored)
            _count_capped([made])
            if stored.is_due and made.deliveries:
                self._nudge(submission.priority)
            return Answer(stored.answer, is_replay=False)
        if kept is None:
            raise RuntimeError("an idempotency key was pruned again and again between two statements")
        return _replayed(kept, key)

    def many(self, tenant_id: str, submissions: Sequence[Submission]) -> list[str]:
        """Store many notifications in one statement and return their ids in order.

        Raises Refused for the first that cannot be done, and stores none then. Whoever calls this guards against
        a repetition: a batch has one key, not one a notification.
        """
        users = {submission.user_id for submission in submissions}
        categories = {submission.category for submission in submissions}
        known = self._pool.run(lambda cursor: accept_context.users(cursor, tenant_id, list(users)))
        caps = self._pool.run(lambda cursor: frequency.caps(cursor, tenant_id, categories))
        for submission in submissions:
            self._check(submission)
        if any(cap_of(each, caps.get(each.category)) for each in submissions):
            written, stored = self._pool.once(
                lambda cursor: self._store_capped_many(cursor, tenant_id, submissions, known, caps)
            )
        else:
            written = self._write(
                tenant_id, submissions, [plan(each, known.get(each.user_id)) for each in submissions]
            )
            stored = self._pool.once(lambda cursor: notifications.accept_many(cursor, tenant_id, written.bulk))
        counts: Counter[tuple[Channel, Priority]] = Counter()
        for submission, made in zip(submissions, written.plans, strict=True):
            counts.update((each.channel, submission.priority) for each in made.deliveries)
        for (channel, priority), count in counts.items():
            metrics.ACCEPTED.labels(channel, priority.name).inc(count)
        _count_superseded(stored)
        _count_capped(written.plans)
        for number in stored.due:
            self._nudge(Priority(number))
        return written.identifiers

    def _write(self, tenant_id: str, submissions: Sequence[Submission], plans: Sequence[Plan]) -> _Written:
        # Drawn once for all: a call to the system for each notification would cost more than the rest of its row.
        noise = secrets.token_bytes(NOISE_BYTES * sum(map(ids_of, plans)))
        identifiers: list[str] = []
        texts: list[bytes] = []
        used = 0
        for submission, made in zip(submissions, plans, strict=True):
            size = NOISE_BYTES * ids_of(made)
            identifier, row = self._rows.bulk_row(tenant_id, submission, made, noise[used : used + size])
            used += size
            identifiers.append(identifier)
            texts.append(row)
        text = f"[{b','.join(texts).decode()}]"
        keys = {(each.user_id, each.supersede_key) for each in submissions if each.supersede_key is not None}
        has_chains = any(made.steps for made in plans)
        least = min(identifiers, default="")
        bulk = notifications.Bulk(text, self._rows.attempts_allowed, keys, least, has_chains)
        return _Written(plans, identifiers, bulk)

    def _store_capped(
        self, cursor: Cursor, tenant_id: str, submission: Submission, known: Known, key: IdempotencyKey
    ) -> tuple[notifications.Stored | None, notifications.Kept | None, Plan]:
        caps = {} if known.cap is None else {submission.category: known.cap}
        with transaction(cursor):
            count = CapCount(cursor, tenant_id, [submission], caps)
            made = count.plan(submission, known.user)
            row = self._rows.row(tenant_id, submission, made, key)
            stored, kept = _store_or_find(cursor, row)
            if stored is not None:
                count.stored(submission, made, row["id"])
                count.note()
        return stored, kept, made

    def _store_capped_many(
        self,
        cursor: Cursor,
        tenant_id: str,
        submissions: Sequence[Submission],
        known: Mapping[str, KnownUser],
        caps: Mapping[str, FrequencyCap],
    ) -> tuple[_Written, notifications.StoredMany]:
        with transaction(cursor):
            count = CapCount(cursor, tenant_id, submissions, caps)
            plans = [count.plan(each, known.get(each.user_id)) for each in submissions]
            written = self._write(tenant_id, submissions, plans)
            stored = notifications.accept_many(cursor, tenant_id, written.bulk)
            for each in zip(submissions, plans, written.identifiers, strict=True):
                count.stored(*each)
            count.note()
        return written, stored

    def _check(self, submission: Submission) -> None:
        """Raise Refused for what can never be delivered, whoever it is for."""
        if not submission.body.strip():
            raise Refused(
                "DOMAIN_CONTENT_EMPTY", "There is nothing to send.", [Problem("content.body", "must not be blank")]
            )
        if Channel.EMAIL in submission.all_channels and not submission.title.strip():
            raise Refused(
                "DOMAIN_CONTENT_EMPTY",
                "An e-mail needs a title.",
                [Problem("content.title", "must not be blank for EMAIL")],
            )
        if submission.scheduled_at is not None and submission.scheduled_at > datetime.now(UTC) + self._horizon:
            raise Refused(
                "DOMAIN_SCHEDULE_TOO_FAR",
                f"A notification can be scheduled at most {self._horizon.days} days ahead.",
                [Problem("scheduled_at", f"must be within {self._horizon.days} days")],
            )


def _count_superseded(stored: notifications.Stored | notifications.StoredMany) -> None:
    if stored.called_off:
        metrics.SUPERSEDED.labels("cancelled").inc(stored.called_off)
    if stored.asked_to_end:
        metrics.SUPERSEDED.labels("asked").inc(stored.asked_to_end)


def _count_capped(plans: Sequence[Plan]) -> None:
    capped = Counter(each["channel"] for made in plans for each in made.suppressed if each["reason"] == CAPPED)
    for channel, count in capped.items():
        metrics.CAPPED.labels(channel).inc(count)


def _replayed(kept: notifications.Kept, key: IdempotencyKey) -> Answer:
    if kept.fingerprint != key.fingerprint:
        raise Refused("DOMAIN_IDEMPOTENCY_KEY_REUSED", "This Idempotency-Key belongs to another request.")
    metrics.REPLAYED.inc()
    return Answer(kept.answer, is_replay=True)


def _store_or_find(
    cursor: Cursor, row: Mapping[str, Any]
) -> tuple[notifications.Stored | None, notifications.Kept | None]:
    """Return what was stored now, or what its key already stood for; again if the key was pruned in between."""
    for _ in range(_TRIES):
        stored = notifications.accept(cursor, row)
        if stored is not None:
            return stored, None
        kept = notifications.find_key(cursor, row["tenant_id"], row["route"], row["key"])
        if kept is not None:
            return None, kept
    return None, None
