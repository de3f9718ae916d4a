"""From a plan to the rows of one statement, and to the answer that the client gets.

The ids are minted in one millisecond, which is also `created_at`; due times are the database's. What is personal
is sealed here, bound to the notification's own id, so no open text leaves for the database.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from app.domain.ids import mint_text
from app.domain.instants import instant
from app.domain.kinds import Channel
from app.domain.quiet_hours import share, spread_until
from app.domain.states import DeliveryState
from app.domain.summary import summarise
from app.sealing import Vault, context
from app.services.accept.plan import Plan, Planned
from app.services.accept.submission import IdempotencyKey, Submission

_BULK_NAMES = (
    "metadata",
    "scheduled_at",
    "expires_in",
    "template",
    "template_version",
    "locale",
    "supersede_key",
    "is_ordered",
)

Own = Mapping[str, Any]
"""What a notification of a batch says beyond the batch: payload, recipients, and what was made of a template."""


class Rows:
    """Writes plans down. Made once: it knows how to seal, and what holds for every delivery."""

    def __init__(self, vault: Vault, attempts_allowed: int, spread_seconds: float = 0.0) -> None:
        self._vault = vault
        self._spread_seconds = spread_seconds
        self.attempts_allowed = attempts_allowed

    def row(self, tenant_id: str, submission: Submission, made: Plan, key: IdempotencyKey) -> dict[str, Any]:
        """Return the values of `notifications.ACCEPT`."""
        created_at, identifier, delivery_ids = _identities(ids_of(made) - 1)
        answer = _answer(identifier, created_at, made, delivery_ids, is_due=True)
        later = answer
        if submission.scheduled_at is not None and Channel.IN_APP in submission.all_channels:
            later = _answer(identifier, created_at, made, delivery_ids, is_due=False)
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
            "template": submission.template,
            "template_version": submission.template_version,
            "locale": submission.locale,
            "sealed": self._sealed(tenant_id, identifier, submission, made),
            "metadata": _object(submission.metadata),
            "suppressed": orjson.dumps(made.suppressed).decode(),
            "decision": orjson.dumps(made.decision).decode(),
            "scheduled_local": _local(submission),
            "supersede_key": submission.supersede_key,
            "is_ordered": submission.is_ordered,
            "delivery_count": len(made.deliveries),
            "scheduled_at": submission.scheduled_at,
            "expires_in": submission.expires_in,
            "created_at": created_at,
            "delivery_ids": f"{{{','.join(delivery_ids[: len(made.deliveries)])}}}",
            "fallback_steps": _steps_column(made),
            "steps": orjson.dumps(_steps(submission, made, delivery_ids)).decode() if made.steps else None,
            "channels": f"{{{','.join([each.channel for each in made.deliveries])}}}",
            "device_ids": f"{{{','.join([each.device_id or 'NULL' for each in made.deliveries])}}}",
            "held_until": f"{{{','.join([each or 'NULL' for each in self._held(made, delivery_ids)])}}}",
            "attempts_allowed": self.attempts_allowed,
        }

    @staticmethod
    def mint(plans: Sequence[Plan]) -> Iterator[list[str]]:
        """Yield the ids of each plan, its notification's first; of two plans, the later one has the greater ids.

        So of several in one list that supersede each other, the last one stays.
        """
        ids = mint_text(sum(map(ids_of, plans)), time.time_ns() // 1_000_000)
        used = 0
        for made in plans:
            yield ids[used : used + ids_of(made)]
            used += ids_of(made)

    def bulk_row(self, tenant_id: str, submission: Submission, made: Plan, ids: Sequence[str]) -> bytes:
        """Return a row of `notifications.ACCEPT_MANY` as JSON text, with ids of `mint`; empty values are left out.

        Thousands of rows as objects would keep the collector busy.
        """
        sealed = self._sealed(tenant_id, ids[0], submission, made)
        return self._bulk_text(ids[0], ids[1:], sealed, submission, made)

    def batch_row(
        self, tenant_id: str, submission: Submission, made: Plan, ids: Sequence[str], own: Own | None
    ) -> bytes:
        """Return a row of a batch, as `bulk_row` does, with ids minted for it: its own, then its deliveries'.

        What the batch says stays on the batch: sealed here is what the row adds to it, and nothing when it adds
        nothing.
        """
        said = {name: value for name, value in own.items() if value} if own else {}
        sealed = b""
        if said:
            sealed = self._vault.seal(context("notification", tenant_id, ids[0]), orjson.dumps(said))
        return self._bulk_text(ids[0], ids[1:], sealed, submission, made)

    def _bulk_text(
        self, identifier: str, delivery_ids: Sequence[str], sealed: bytes, submission: Submission, made: Plan
    ) -> bytes:
        values: dict[str, Any] = {
            "id": identifier,
            "user_id": submission.user_id,
            "category": submission.category,
            "priority": submission.priority,
            "sealed": "\\x" + sealed.hex(),
            "delivery_ids": delivery_ids[: len(made.deliveries)],
            "channels": [each.channel for each in made.deliveries],
            "decision": made.decision,
        }
        if made.suppressed:
            values["suppressed"] = made.suppressed
        if any(each.device_id for each in made.deliveries):
            values["device_ids"] = [each.device_id for each in made.deliveries]
        if any(each.held_until for each in made.deliveries):
            values["held_until"] = self._held(made, delivery_ids)
        if made.steps:
            values["fallback_steps"] = [each.step for each in made.deliveries]
            values["steps"] = _steps(submission, made, delivery_ids)
        if submission.scheduled_local is not None:
            values["scheduled_local"] = submission.scheduled_local.stored()
        for name in _BULK_NAMES:
            if (value := getattr(submission, name)) not in (None, {}, False):
                values[name] = value
        return orjson.dumps(values)

    def _held(self, made: Plan, delivery_ids: Sequence[str]) -> list[str | None]:
        """Return until when each delivery is held: the end of its quiet hours, and its own share of the spread."""
        held: list[str | None] = []
        for each, identifier in zip(made.deliveries, delivery_ids, strict=False):
            until = each.held_until
            if until is not None and each.quiet is not None:
                until = spread_until(until, share(identifier) * self._spread_seconds, *each.quiet)
            held.append(None if until is None else until.isoformat())
        return held

    def _sealed(self, tenant_id: str, identifier: str, submission: Submission, made: Plan) -> bytes:
        said = {
            "title": submission.title,
            "body": submission.body,
            "html": submission.html,
            "time_zone": submission.time_zone,
            "payload": submission.payload,
            "recipients": made.recipients,
        }
        plain = orjson.dumps({name: value for name, value in said.items() if value})
        return self._vault.seal(context("notification", tenant_id, identifier), plain)


def ids_of(made: Plan) -> int:
    """Return how many ids a plan needs: its notification's, its deliveries', and those that may be made later."""
    return 1 + len(made.deliveries) + sum(map(len, made.steps[1:]))


def _steps_column(made: Plan) -> str:
    return f"{{{','.join('NULL' if each.step is None else str(each.step) for each in made.deliveries)}}}"


def _steps(submission: Submission, made: Plan, delivery_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the steps of a chain. The first has its deliveries among the plan's; the others' ids follow."""
    first = [delivery_ids[place] for place, each in enumerate(made.deliveries) if each.step == 0]
    rest = iter(delivery_ids[len(made.deliveries) :])
    held = [each.held_until for each in made.steps[0] if each.held_until is not None]
    return [
        {
            "step": number,
            "channel": step[0].channel,
            "delivery_ids": [next(rest) for _ in step] if number else first,
            "device_ids": [each.device_id for each in step],
            "after_seconds": submission.fallback.after_seconds if submission.fallback and number else None,
            "held_until": max(held).isoformat() if held and number == 1 else None,
        }
        for number, step in enumerate(made.steps)
    ]


def _identities(deliveries: int) -> tuple[str, str, list[str]]:
    """Return when a notification was made, its id, and its deliveries' ids in the order of the plan.

    They carry one millisecond, which is also `created_at`. Deliveries are read back by id, hence in that order.
    """
    milliseconds = time.time_ns() // 1_000_000
    first, *rest = mint_text(1 + deliveries, milliseconds)
    return _instant_of(milliseconds), first, rest


@lru_cache(maxsize=64)
def _instant_of(milliseconds: int) -> str:
    return instant(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _answer(identifier: str, created_at: str, made: Plan, delivery_ids: Sequence[str], *, is_due: bool) -> str:
    states = [_first_state(each, is_due=is_due) for each in made.deliveries]
    return orjson.dumps(
        {
            "id": identifier,
            "status": summarise(states),
            "created_at": created_at,
            "deliveries": [
                {"id": delivery_id, "channel": each.channel, "status": state}
                for delivery_id, each, state in zip(delivery_ids, made.deliveries, states, strict=False)
            ],
            "suppressed": made.suppressed,
        }
    ).decode()


def _first_state(planned: Planned, *, is_due: bool) -> DeliveryState:
    """An in-app message that is due now is delivered by being stored."""
    is_stored = is_due and planned.channel is Channel.IN_APP and planned.held_until is None
    return DeliveryState.DELIVERED if is_stored else DeliveryState.PENDING


def _local(submission: Submission) -> str | None:
    local = submission.scheduled_local
    return None if local is None else orjson.dumps(local.stored()).decode()


def _object(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode() if value else "{}"
