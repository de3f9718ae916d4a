"""Accept: the promise to deliver. One transaction stores the notification, its deliveries and the answer.

Nothing is published here (the relay does that from the table), so a broker that is down costs a request nothing.
The ids are minted in one millisecond, which is also `created_at`; due times are the database's.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from app.db import notifications
from app.db.requests import Cursor, RequestPool
from app.domain.ids import mint_text
from app.domain.kinds import Channel, Priority
from app.domain.states import DeliveryState
from app.domain.summary import summarise
from app.observability import metrics
from app.services.recipients import NORMALISERS, InvalidRecipientError
from app.services.refusal import Problem, Refused

Nudge = Callable[[Priority], None]
"""Wakes the relay after a commit. Never raises and never blocks: the relay's own tick does the same, later."""

_TRIES = 3
_NOISE_BYTES = 10


@dataclass(frozen=True, slots=True)
class Submission:
    """A notification as it was asked for. `expires_in` is in seconds, `recipients` as the client wrote them."""

    user_id: str
    category: str
    priority: Priority
    channels: tuple[Channel, ...]
    title: str
    body: str
    recipients: Mapping[str, str]
    metadata: Mapping[str, Any]
    payload: Mapping[str, Any]
    scheduled_at: datetime | None = None
    expires_in: int | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's key with its scope, and a digest of the request that may use it."""

    route: str
    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The stored answer, JSON text; `is_replay` when an earlier request stored it."""

    text: str
    is_replay: bool


class Accept:
    """The use case. Holds no state between calls."""

    def __init__(self, pool: RequestPool, nudge: Nudge, *, attempts_allowed: int, schedule_max_days: int) -> None:
        self._pool = pool
        self._nudge = nudge
        self._attempts_allowed = attempts_allowed
        self._horizon = timedelta(days=schedule_max_days)

    def one(self, tenant_id: str, submission: Submission, key: IdempotencyKey) -> Answer:
        """Store one notification, or return what the key already stands for.

        Raises Refused when it cannot be done, or when the key belongs to another request. A connection that was
        lost before the answer is tried again on another: the key makes that safe, even if the first did commit.
        """
        recipients = self._check(submission)
        row = _row(tenant_id, submission, recipients, key, self._attempts_allowed)
        stored, kept = self._pool.run(lambda cursor: _store_or_find(cursor, row))
        if stored is not None:
            _count(submission)
            if stored.is_due:
                self._nudge(submission.priority)
            return Answer(stored.answer, is_replay=False)
        if kept is None:
            raise RuntimeError("an idempotency key was pruned again and again between two statements")
        if kept.fingerprint != key.fingerprint:
            raise Refused("DOMAIN_IDEMPOTENCY_KEY_REUSED", "This Idempotency-Key belongs to another request.")
        metrics.REPLAYED.inc()
        return Answer(kept.answer, is_replay=True)

    def many(self, tenant_id: str, submissions: Sequence[Submission]) -> list[str]:
        """Store many notifications in one statement and return their ids in order.

        Raises Refused for the first that cannot be done, and stores none then. Whoever calls this guards against
        a repetition: a batch has one key, not one a notification.
        """
        # Drawn once for all: a call to the system for each notification would cost more than the rest of its row.
        noise = secrets.token_bytes(_NOISE_BYTES * sum(1 + len(each.channels) for each in submissions))
        identifiers: list[str] = []
        rows: list[bytes] = []
        used = 0
        for submission in submissions:
            size = _NOISE_BYTES * (1 + len(submission.channels))
            identifier, row = _bulk_row(submission, self._check(submission), noise[used : used + size])
            used += size
            identifiers.append(identifier)
            rows.append(row)
        text = f"[{b','.join(rows).decode()}]"
        due = self._pool.once(
            lambda cursor: notifications.accept_many(cursor, tenant_id, text, self._attempts_allowed)
        )
        for (channel, priority), count in Counter(
            (channel, submission.priority) for submission in submissions for channel in submission.channels
        ).items():
            metrics.ACCEPTED.labels(channel, priority.name).inc(count)
        for number in due:
            self._nudge(Priority(number))
        return identifiers

    def _check(self, submission: Submission) -> dict[str, str]:
        """Return the normalised recipients of the channels; raise Refused for what can never be delivered."""
        if not submission.body.strip():
            raise Refused(
                "DOMAIN_CONTENT_EMPTY", "There is nothing to send.", [Problem("content.body", "must not be blank")]
            )
        if Channel.EMAIL in submission.channels and not submission.title.strip():
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
        return _normalised(submission)


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


def _normalised(submission: Submission) -> dict[str, str]:
    recipients: dict[str, str] = {}
    missing: list[Problem] = []
    invalid: list[Problem] = []
    for channel in submission.channels:
        normalise = NORMALISERS.get(channel)
        if normalise is None:
            continue
        text = submission.recipients.get(channel)
        if text is None:
            missing.append(Problem(f"recipients.{channel}", f"needed for channel {channel}"))
            continue
        try:
            recipients[channel.value] = normalise(text)
        except InvalidRecipientError as error:
            invalid.append(Problem(f"recipients.{channel}", str(error)))
    if invalid:
        raise Refused("DOMAIN_RECIPIENT_INVALID", "A recipient cannot be sent to.", [*invalid, *missing])
    if missing:
        raise Refused("DOMAIN_RECIPIENT_MISSING", "A channel has no recipient.", missing)
    return recipients


def _identities(channels: Sequence[Channel], noise: bytes = b"") -> tuple[str, str, list[str]]:
    """Return when a notification was made, its id, and its deliveries' ids in the order of the channels.

    They carry one millisecond, which is also `created_at`. Deliveries are read back by id, hence in that order.
    """
    milliseconds = time.time_ns() // 1_000_000
    first, *rest = mint_text(1 + len(channels), milliseconds, noise)
    return _instant_of(milliseconds), first, rest


@lru_cache(maxsize=64)
def _instant_of(milliseconds: int) -> str:
    return instant(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _row(
    tenant_id: str, submission: Submission, recipients: dict[str, str], key: IdempotencyKey, attempts_allowed: int
) -> dict[str, Any]:
    created_at, identifier, delivery_ids = _identities(submission.channels)
    answer = _answer(identifier, created_at, submission.channels, delivery_ids, is_due=True)
    later = answer
    if submission.scheduled_at is not None and Channel.IN_APP in submission.channels:
        later = _answer(identifier, created_at, submission.channels, delivery_ids, is_due=False)
    return {
        "tenant_id": tenant_id,
        "route": key.route,
        "key": key.key,
        "fingerprint": key.fingerprint,
        "answer": answer,
        "answer_later": later,
        "id": identifier,
        "user_id": submission.user_id,
        "category": submission.category,
        "priority": int(submission.priority),
        "payload": _object(submission.payload),
        "title": submission.title,
        "body": submission.body,
        "recipients": _object(recipients),
        "metadata": _object(submission.metadata),
        "delivery_count": len(submission.channels),
        "scheduled_at": submission.scheduled_at,
        "expires_in": submission.expires_in,
        "created_at": created_at,
        "delivery_ids": f"{{{','.join(delivery_ids)}}}",
        "channels": f"{{{','.join(submission.channels)}}}",
        "attempts_allowed": attempts_allowed,
    }


def _bulk_row(submission: Submission, recipients: dict[str, str], noise: bytes) -> tuple[str, bytes]:
    """Return an id and its row as JSON text: thousands of rows as objects would keep the collector busy."""
    _, identifier, delivery_ids = _identities(submission.channels, noise)
    row: dict[str, Any] = {
        "id": identifier,
        "user_id": submission.user_id,
        "category": submission.category,
        "priority": submission.priority,
        "title": submission.title,
        "body": submission.body,
        "recipients": recipients,
        "delivery_ids": delivery_ids,
        "channels": submission.channels,
    }
    for name in ("payload", "metadata", "scheduled_at", "expires_in"):
        if (value := getattr(submission, name)) not in (None, {}):
            row[name] = value
    return identifier, orjson.dumps(row)


def _answer(
    identifier: str, created_at: str, channels: Sequence[Channel], delivery_ids: Sequence[str], *, is_due: bool
) -> str:
    states = [
        DeliveryState.DELIVERED if is_due and channel is Channel.IN_APP else DeliveryState.PENDING
        for channel in channels
    ]
    return orjson.dumps(
        {
            "id": identifier,
            "status": summarise(states),
            "created_at": created_at,
            "deliveries": [
                {"id": delivery_id, "channel": channel, "status": state}
                for delivery_id, channel, state in zip(delivery_ids, channels, states, strict=True)
            ],
            "suppressed": [],
        }
    ).decode()


def instant(moment: datetime) -> str:
    """Return an aware instant as the API writes it: RFC 3339 in UTC, to the millisecond."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _object(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode() if value else "{}"


def _count(submission: Submission) -> None:
    for channel in submission.channels:
        metrics.ACCEPTED.labels(channel, submission.priority.name).inc()
