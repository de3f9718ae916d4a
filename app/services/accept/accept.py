"""Accept: the promise to deliver. One transaction stores the notification, its deliveries and the answer.

Nothing is published here (the relay does that from the table), so a broker that is down costs a request nothing.
A read comes first: whether the key was used before, and what is known of the user. The key is claimed in the
transaction that stores, so of two requests that both read "not used" one stores and the other finds its answer.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.db import accept_context, notifications, templates
from app.db.accept_context import Known
from app.db.requests import Cursor, RequestPool
from app.domain.kinds import Channel, Priority
from app.observability import metrics
from app.rendering.library import Key, Library, Version, version_of
from app.sealing import Vault
from app.services.accept.deciding import Deciding
from app.services.accept.plan import Plan
from app.services.accept.rows import NOISE_BYTES, Rows
from app.services.accept.submission import Answer, IdempotencyKey, Submission
from app.services.arrivals import Arrivals
from app.services.refusal import Refused

Nudge = Callable[[Priority], None]
"""Wakes the relay after a commit. Never raises and never blocks: the relay's own tick does the same, later."""

_TRIES = 3


class Accept:
    """The use case. Holds no state between calls but the versions of templates, which never change."""

    def __init__(
        self,
        pool: RequestPool,
        vault: Vault,
        nudge: Nudge,
        arrivals: Arrivals,
        *,
        library: Library,
        attempts_allowed: int,
        schedule_max_days: int,
        spread_seconds: float = 0.0,
    ) -> None:
        self._pool = pool
        self._arrivals = arrivals
        self._library = library
        self._deciding = Deciding(vault, library, schedule_max_days)
        self._rows = Rows(vault, attempts_allowed, spread_seconds)
        self._nudge = nudge

    def one(self, tenant_id: str, submission: Submission, key: IdempotencyKey) -> Answer:
        """Store one notification, or return what the key already stands for.

        Raises Refused when it cannot be done, or when the key belongs to another request. A connection that was
        lost before the answer is tried again on another: the key makes that safe, even if the first did commit.
        """
        asked = self._deciding.asked(tenant_id, submission)
        known = self._pool.run(lambda cursor: accept_context.read(cursor, tenant_id, asked, key.route, key.key))
        if known.kept is not None:
            return _replayed(known.kept, key)
        submission, made = self._decide_one(tenant_id, submission, known)
        row = self._rows.row(tenant_id, submission, made, key)
        inboxes = [(tenant_id, submission.user_id)] if made.is_for_inbox else []
        with self._arrivals.expected(inboxes):
            stored, kept = self._pool.run(lambda cursor: _store_or_find(cursor, row))
        if stored is not None:
            if inboxes and stored.is_due:
                self._arrivals.tell(tenant_id, submission.user_id, row["id"])
            for each in made.deliveries:
                metrics.ACCEPTED.labels(each.channel, submission.priority.name).inc()
            for kept_back in made.suppressed:
                metrics.SUPPRESSED.labels(kept_back["channel"], kept_back["reason"]).inc()
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
        asked = [self._deciding.asked(tenant_id, submission) for submission in submissions]
        known = self._pool.run(lambda cursor: accept_context.read_many(cursor, tenant_id, asked))
        versions = self._versions(tenant_id, {each.template for each in submissions if each.template is not None})
        decided = [
            self._deciding.decide(submission, each, versions.get(submission.template or ""), check_all=False)
            for submission, each in zip(submissions, known, strict=True)
        ]
        written, plans = [pair[0] for pair in decided], [pair[1] for pair in decided]
        # Drawn once for all: a call to the system for each notification would cost more than the rest of its row.
        noise = secrets.token_bytes(NOISE_BYTES * sum(1 + len(made.deliveries) for made in plans))
        identifiers: list[str] = []
        texts: list[bytes] = []
        counts: Counter[tuple[Channel, Priority]] = Counter()
        used = 0
        for submission, made in zip(written, plans, strict=True):
            size = NOISE_BYTES * (1 + len(made.deliveries))
            identifier, row = self._rows.bulk_row(tenant_id, submission, made, noise[used : used + size])
            used += size
            identifiers.append(identifier)
            texts.append(row)
            counts.update((each.channel, submission.priority) for each in made.deliveries)
        text = f"[{b','.join(texts).decode()}]"
        boxed = [
            (submission.user_id, identifier)
            for submission, made, identifier in zip(submissions, plans, identifiers, strict=True)
            if made.is_for_inbox and submission.scheduled_at is None
        ]
        with self._arrivals.expected([(tenant_id, user_id) for user_id, _ in boxed]):
            due = self._pool.once(
                lambda cursor: notifications.accept_many(cursor, tenant_id, text, self._rows.attempts_allowed)
            )
        for user_id, identifier in boxed:
            self._arrivals.tell(tenant_id, user_id, identifier)
        for (channel, priority), count in counts.items():
            metrics.ACCEPTED.labels(channel, priority.name).inc(count)
        for number in due:
            self._nudge(Priority(number))
        return identifiers

    def explain(self, tenant_id: str, submission: Submission) -> tuple[Submission, Plan]:
        """Return what would become of a submission, and do nothing. Raises Refused as `one` does."""
        asked = self._deciding.asked(tenant_id, submission)
        known = self._pool.run(lambda cursor: accept_context.read(cursor, tenant_id, asked))
        return self._decide_one(tenant_id, submission, known)

    def shared(self, tenant_id: str, submission: Submission) -> Submission:
        """Return what all notifications of a batch have in common, checked; raise Refused.

        It holds the content as it is stored, or the version of the template that all of them are made of.
        """
        version = None
        if submission.template is not None:
            version = self._versions(tenant_id, {submission.template}).get(submission.template)
        return self._deciding.shared(submission, version)

    def _decide_one(self, tenant_id: str, submission: Submission, known: Known) -> tuple[Submission, Plan]:
        version = None
        if submission.template is not None:
            version = self._version(tenant_id, submission.template, known.template_version)
        return self._deciding.decide(submission, known, version, check_all=True)

    def _version(self, tenant_id: str, name: str, number: int | None) -> Version | None:
        if number is None:
            return None
        key = (tenant_id, name, number)
        return self._library.find(key) or self._load(tenant_id, [key]).get(name)

    def _versions(self, tenant_id: str, names: set[str]) -> dict[str, Version]:
        """Return the current versions of templates by name: one look-up for all, one for what is not at hand."""
        if not names:
            return {}
        numbers = self._pool.run(lambda cursor: templates.current(cursor, tenant_id, sorted(names)))
        keys = [(tenant_id, name, number) for name, number in numbers.items()]
        found = {key[1]: version for key in keys if (version := self._library.find(key)) is not None}
        return found | self._load(tenant_id, [key for key in keys if key[1] not in found])

    def _load(self, tenant_id: str, keys: list[Key]) -> dict[str, Version]:
        if not keys:
            return {}
        rows = self._pool.run(lambda cursor: templates.load_for(cursor, tenant_id, keys))
        return {version.name: self._library.keep(version) for version in map(version_of, rows)}


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
