"""A chunk: the next recipients of a batch become notifications, decided by the same plan as a single one.

The shared part is one Submission; each recipient gets it with a name of their own. Whom the plan refuses is a
rejected row, and so is who is named a second time by a list: three spellings of one number are one message.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeAlias

import orjson

from app.db import accept_context, batch_work, notifications, templates
from app.db.batch_work import Range, Rejected, Work
from app.db.requests import Cursor
from app.domain.ids import mint, mint_text, siblings
from app.domain.kinds import Channel, Priority
from app.rendering.library import Library, Version, version_of
from app.sealing import Vault, context
from app.services.accept.capped import CapCount, cap_of
from app.services.accept.deciding import Deciding, Prepared
from app.services.accept.plan import Plan
from app.services.accept.rows import Own, Rows
from app.services.accept.submission import Submission
from app.services.batches.sources import ERROR_LIMIT, Portion, Recipient
from app.services.refusal import Refused

Planned: TypeAlias = tuple[Prepared, Plan, Own | None]
"""A notification to be made: what is asked, what becomes of it, and what it says of its own."""

_FIELDS = tuple(each.name for each in fields(Submission))
FRESH_SECONDS = 0.5
"""How old a plan may be when it is written down; a deadline leaves room for it."""
_DUPLICATE = ("duplicate", "the list names this recipient before")


class Written:
    """What a chunk came to."""

    def __init__(self) -> None:
        self.made = 0
        self.deliveries = 0
        self.by_channel: Counter[Channel] = Counter()
        self.suppressed: Counter[str] = Counter()
        self.rejected: list[Rejected] = []
        self.due: list[int] = []
        self.millisecond = 0
        self.arrived: list[tuple[str, str]] = []
        """Which notification came into whose inbox: (user, id)."""


class Chunks:
    """Writes chunks down, inside a transaction of the caller that holds the batch's row."""

    def __init__(self, vault: Vault, rows: Rows, deciding: Deciding, library: Library) -> None:
        self._vault = vault
        self._rows = rows
        self._deciding = deciding
        self._library = library

    def write(self, cursor: Cursor, work: Work, portion: Portion, planned: list[Planned]) -> Written:
        """Store what is planned for a portion, and its mark; return what became of it."""
        written = Written()
        written.rejected = portion.rejected
        if planned:
            self._store(cursor, work, planned, written)
        kept = written.rejected[: max(ERROR_LIMIT - work.rejected_count, 0)]
        if kept:
            batch_work.reject(cursor, work, kept)
        return written

    def planned(
        self, cursor: Cursor, work: Work, recipients: Sequence[Recipient], rejected: list[Rejected]
    ) -> list[Planned]:
        """Return what is to be made for `recipients`; whom the plan refuses is added to `rejected`.

        Of a list it also writes down who was named.
        """
        shared = self._shared(work)
        is_list = work.segment is None
        planned: list[Planned] = []
        rows: list[Recipient] = []
        submissions = [
            Submission(**_with(shared, each) if is_list else {**shared, "user_id": each.user_id})
            for each in recipients
        ]
        asked = [self._deciding.asked(work.tenant_id, submission) for submission in submissions]
        known = accept_context.read_many(cursor, work.tenant_id, asked)
        version = self._version(cursor, work)
        for each, submission, found in zip(recipients, submissions, known, strict=True):
            try:
                prepared = self._deciding.prepare(submission, found, version, check_all=False, is_written=True)
                made = prepared.plan()
            except Refused as error:
                code = error.code.removeprefix("DOMAIN_").lower()
                message = "; ".join(f"{one.field}: {one.message}" for one in error.problems) or error.message
                rejected.append(Rejected(each.row, each.user_id, code, message))
                continue
            own = _own(each, prepared.submission, made) if is_list or version else None
            planned.append((prepared, made, own))
            rows.append(each)
        return self._named_once(cursor, work, planned, rows, rejected) if is_list else planned

    def _version(self, cursor: Cursor, work: Work) -> Version | None:
        """Return the version of the template that the batch was accepted with."""
        if work.template is None or work.template_version is None:
            return None
        key = (work.tenant_id, work.template, work.template_version)
        found = self._library.find(key)
        if found is None:
            for row in templates.load_for(cursor, work.tenant_id, [key]):
                found = self._library.keep(version_of(row))
        return found

    def _shared(self, work: Work) -> dict[str, Any]:
        """Return what all notifications of a batch have in common, as the arguments of a Submission."""
        said = orjson.loads(self._vault.open(context("batch", work.tenant_id, work.id), bytes(work.sealed)))
        shared = dict.fromkeys(_FIELDS) | {
            "category": work.category,
            "priority": Priority(work.priority),
            "channels": tuple(Channel(channel) for channel in work.channels),
            "title": said.get("title", ""),
            "body": said.get("body", ""),
            "html": said.get("html"),
            "template": work.template,
            "template_version": work.template_version,
            "payload": said.get("payload", {}),
            "recipients": {},
            "metadata": work.metadata,
            "scheduled_at": work.scheduled_at,
            "expires_in": None if work.seconds_left is None else max(int(work.seconds_left - FRESH_SECONDS), 1),
        }
        return {name: shared[name] for name in _FIELDS}

    def _named_once(
        self,
        cursor: Cursor,
        work: Work,
        planned: list[Planned],
        rows: list[Recipient],
        rejected: list[Rejected],
    ) -> list[Planned]:
        """Leave out whom the list has named before: by their addresses where it gives any, else by their id."""
        marks = []
        for prepared, made, _ in planned:
            named = orjson.dumps(made.recipients, option=orjson.OPT_SORT_KEYS).decode() if made.recipients else ""
            kind = "batch-recipient" if made.recipients else "batch-user"
            marks.append(self._vault.index(work.tenant_id, kind, named or prepared.submission.user_id))
        fresh = batch_work.first_seen(cursor, work, list(set(marks))) if marks else set()
        once = []
        for entry, row, mark in zip(planned, rows, marks, strict=True):
            if mark in fresh:
                fresh.discard(mark)
                once.append(entry)
            else:
                rejected.append(Rejected(row.row, row.user_id, *_DUPLICATE))
        return once

    def _store(
        self,
        cursor: Cursor,
        work: Work,
        planned: list[Planned],
        written: Written,
    ) -> None:
        count = CapCount(cursor, work.tenant_id, [prepared for prepared, _, _ in planned])
        planned = [
            (prepared, made if cap_of(prepared.submission, prepared.known) is None else count.plan(prepared), own)
            for prepared, made, own in planned
        ]
        # Ids of a chunk carry one millisecond that no other chunk of the batch has: the chunk is their range.
        written.millisecond = max(time.time_ns() // 1_000_000, work.last_millisecond + 1)
        ids = mint_text(sum(1 + len(made.deliveries) for _, made, _ in planned), written.millisecond)
        texts, used = [], 0
        for prepared, made, own in planned:
            submission = prepared.submission
            until = used + 1 + len(made.deliveries)
            texts.append(self._rows.batch_row(work.tenant_id, submission, made, ids[used:until], own))
            if made.is_for_inbox:
                written.arrived.append((submission.user_id, ids[used]))
            count.stored(prepared, made, ids[used])
            used = until
        written.by_channel = Counter(each.channel for _, made, _ in planned for each in made.deliveries)
        written.suppressed = Counter(each["reason"] for _, made, _ in planned for each in made.suppressed)
        written.made = len(planned)
        written.deliveries = written.by_channel.total()
        text = f"[{b','.join(texts).decode()}]"
        attempts = self._rows.attempts_allowed
        bulk = notifications.Bulk(text, attempts, batch_id=work.id)
        written.due = notifications.accept_many(cursor, work.tenant_id, bulk).due
        count.note()
        low, high = siblings(mint(1, written.millisecond)[0])
        chunk = Range(work.chunk_count + 1, str(low), str(high))
        states = {"PENDING": written.deliveries} if written.deliveries else {}
        if written.by_channel[Channel.IN_APP]:
            states = batch_work.count(cursor, work.id, chunk)
        values = {
            "number": chunk.number,
            "low": chunk.low,
            "high": chunk.high,
            "made": written.made,
            "deliveries": written.deliveries,
            "states": orjson.dumps(states).decode(),
        }
        batch_work.add_chunk(cursor, work, values)


def _with(shared: dict[str, Any], row: Recipient) -> dict[str, Any]:
    payload = {**shared["payload"], **row.payload} if row.payload else shared["payload"]
    return {
        **shared,
        "user_id": row.user_id,
        "recipients": row.recipients,
        "payload": payload,
        "locale": row.locale,
    }


def _own(row: Recipient, written: Submission, made: Plan) -> Own:
    """Return what a notification says beyond its batch; of a template also what was made for its reader."""
    own: dict[str, Any] = {"payload": row.payload, "recipients": made.recipients}
    if written.template is not None:
        own |= {"title": written.title, "body": written.body, "time_zone": written.time_zone}
    return own
