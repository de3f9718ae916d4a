"""Accept: the promise to deliver. One transaction stores the notification, its deliveries and the answer.

Nothing is published here (the relay does that from the table), so a broker that is down costs a request nothing.
A read comes first: whether the key was used before, and what is known of the user. The key is claimed in the
transaction that stores, so of two requests that both read "not used" one stores and the other finds its answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.db import accept_context, notifications, templates
from app.db.accept_context import Known
from app.db.requests import Cursor, RequestPool
from app.db.transactions import transaction
from app.domain.kinds import Channel, Priority
from app.observability import metrics
from app.rendering.library import Key, Library, Version, version_of
from app.sealing import Vault
from app.services.accept.capped import CapCount, cap_of
from app.services.accept.deciding import Deciding, Prepared
from app.services.accept.plan import CAPPED, Plan
from app.services.accept.rows import Rows
from app.services.accept.submission import Answer, IdempotencyKey, Submission
from app.services.arrivals import Arrivals
from app.services.refusal import Refused

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
        prepared = self._prepare_one(tenant_id, submission, known)
        with self._arrivals.expected([(tenant_id, submission.user_id)] if prepared.may_change_inbox else []):
            if cap_of(submission, known) is None:
                made = prepared.plan()
                row = self._rows.row(tenant_id, prepared.submission, made, key)
                stored, kept = self._pool.run(lambda cursor: _store_or_find(cursor, row))
            else:
                stored, kept, made, row = self._pool.run(
                    lambda cursor: self._store_capped(cursor, tenant_id, prepared, key)
                )
        if stored is not None:
            if made.is_for_inbox and stored.is_due:
                self._arrivals.tell(tenant_id, submission.user_id, row["id"])
            for each in made.deliveries:
                metrics.ACCEPTED.labels(each.channel, submission.priority.name).inc()
            for kept_back in made.suppressed:
                metrics.SUPPRESSED.labels(kept_back["channel"], kept_back["reason"]).inc()
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
        asked = [self._deciding.asked(tenant_id, submission) for submission in submissions]
        known = self._pool.run(lambda cursor: accept_context.read_many(cursor, tenant_id, asked))
        versions = self._versions(tenant_id, {each.template for each in submissions if each.template is not None})
        prepared = [
            self._deciding.prepare(submission, each, versions.get(submission.template or ""), check_all=False)
            for submission, each in zip(submissions, known, strict=True)
        ]
        with self._arrivals.expected(
            [(tenant_id, each.submission.user_id) for each in prepared if each.may_change_inbox]
        ):
            if any(cap_of(each.submission, each.known) for each in prepared):
                written, stored = self._pool.once(
                    lambda cursor: self._store_capped_many(cursor, tenant_id, prepared)
                )
            else:
                written = self._write(tenant_id, prepared, [each.plan() for each in prepared])
                stored = self._pool.once(lambda cursor: notifications.accept_many(cursor, tenant_id, written.bulk))
        counts: Counter[tuple[Channel, Priority]] = Counter()
        for each, made, identifier in zip(prepared, written.plans, written.identifiers, strict=True):
            counts.update((planned.channel, each.submission.priority) for planned in made.deliveries)
            if made.is_for_inbox and each.submission.scheduled_at is None:
                self._arrivals.tell(tenant_id, each.submission.user_id, identifier)
        for (channel, priority), count in counts.items():
            metrics.ACCEPTED.labels(channel, priority.name).inc(count)
        _count_superseded(stored)
        _count_capped(written.plans)
        for number in stored.due:
            self._nudge(Priority(number))
        return written.identifiers

    def _write(self, tenant_id: str, prepared: Sequence[Prepared], plans: Sequence[Plan]) -> _Written:
        identifiers: list[str] = []
        texts: list[bytes] = []
        keys: set[tuple[str, str]] = set()
        for each, made, ids in zip(prepared, plans, Rows.mint(plans), strict=True):
            submission = each.submission
            identifiers.append(ids[0])
            texts.append(self._rows.bulk_row(tenant_id, submission, made, ids))
            if submission.supersede_key is not None:
                keys.add((submission.user_id, submission.supersede_key))
        text = f"[{b','.join(texts).decode()}]"
        has_chains = any(made.steps for made in plans)
        least = min(identifiers, default="")
        bulk = notifications.Bulk(text, self._rows.attempts_allowed, keys, least, has_chains)
        return _Written(plans, identifiers, bulk)

    def _store_capped(
        self, cursor: Cursor, tenant_id: str, prepared: Prepared, key: IdempotencyKey
    ) -> tuple[notifications.Stored | None, notifications.Kept | None, Plan, dict[str, Any]]:
        with transaction(cursor):
            count = CapCount(cursor, tenant_id, [prepared])
            made = count.plan(prepared)
            row = self._rows.row(tenant_id, prepared.submission, made, key)
            stored, kept = _store_or_find(cursor, row)
            if stored is not None:
                count.stored(prepared, made, row["id"])
                count.note()
        return stored, kept, made, row

    def _store_capped_many(
        self, cursor: Cursor, tenant_id: str, prepared: Sequence[Prepared]
    ) -> tuple[_Written, notifications.StoredMany]:
        with transaction(cursor):
            count = CapCount(cursor, tenant_id, prepared)
            plans = [count.plan(each) for each in prepared]
            written = self._write(tenant_id, prepared, plans)
            stored = notifications.accept_many(cursor, tenant_id, written.bulk)
            for each in zip(prepared, plans, written.identifiers, strict=True):
                count.stored(*each)
            count.note()
        return written, stored

    def explain(self, tenant_id: str, submission: Submission) -> tuple[Submission, Plan]:
        """Return what would become of a submission, and do nothing. Raises Refused as `one` does."""
        asked = self._deciding.asked(tenant_id, submission)
        known = self._pool.run(lambda cursor: accept_context.read(cursor, tenant_id, asked))
        prepared = self._prepare_one(tenant_id, submission, known)
        if cap_of(submission, known) is None:
            return prepared.submission, prepared.plan()
        made = self._pool.run(
            lambda cursor: CapCount(cursor, tenant_id, [prepared], takes_turns=False).plan(prepared)
        )
        return prepared.submission, made

    def shared(self, tenant_id: str, submission: Submission) -> Submission:
        """Return what all notifications of a batch have in common, checked; raise Refused.

        It holds the content as it is stored, or the version of the template that all of them are made of.
        """
        version = None
        if submission.template is not None:
            version = self._versions(tenant_id, {submission.template}).get(submission.template)
        return self._deciding.shared(submission, version)

    def _prepare_one(self, tenant_id: str, submission: Submission, known: Known) -> Prepared:
        version = None
        if submission.template is not None:
            version = self._version(tenant_id, submission.template, known.template_version)
        return self._deciding.prepare(submission, known, version, check_all=True)

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
