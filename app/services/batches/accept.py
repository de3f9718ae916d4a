"""Accepting a batch: stored as it was asked for, in one statement, whatever the number of its recipients.

A segment is stored as its filter and a list as sealed text, so the promise costs the same for ten people and for a
million. Who that is, and whether anything can be sent to them, is found out by the expander.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import orjson

from app.db import batches
from app.db.requests import RequestPool
from app.domain.batches import BatchState, CanaryState, Source
from app.domain.callers import Caller
from app.domain.ids import mint
from app.domain.instants import instant
from app.observability import metrics
from app.observability.logging import get_logger
from app.sealing import Vault, context
from app.services.accept.submission import Answer, IdempotencyKey, Submission
from app.services.batches.sources import as_parts
from app.services.batches.submission import BatchSubmission
from app.services.refusal import Refused

_log = get_logger(__name__)


class AcceptBatch:
    """The use case. `shared` checks and writes what all get; `wake` wakes the expander and never raises."""

    def __init__(
        self,
        pool: RequestPool,
        vault: Vault,
        shared: Callable[[str, Submission], Submission],
        wake: Callable[[], None],
        open_limit: int,
    ) -> None:
        self._pool = pool
        self._vault = vault
        self._shared = shared
        self._wake = wake
        self._open_limit = open_limit

    def __call__(self, caller: Caller, asked: BatchSubmission, key: IdempotencyKey) -> Answer:
        """Store a batch, or return what the key already stands for; raise Refused."""
        shared = self._shared(caller.tenant_id, _as_one(asked))
        milliseconds = time.time_ns() // 1_000_000
        identifier = str(mint(1, milliseconds)[0])
        created_at = instant(datetime.fromtimestamp(milliseconds / 1000, UTC))
        state = BatchState.UPLOADING if asked.source is Source.UPLOAD else BatchState.ACCEPTED
        total = len(asked.rows) if asked.source is Source.RECIPIENTS else None
        answer = orjson.dumps(
            {
                "id": identifier,
                "state": state,
                "source": asked.source,
                "created_at": created_at,
                "total": total,
                "next_offset": 0 if asked.source is Source.UPLOAD else None,
            }
        ).decode()
        listed = b"\n".join(orjson.dumps(row) for row in asked.rows)
        said = {"title": shared.title, "body": shared.body, "html": shared.html, "payload": shared.payload}
        plain = orjson.dumps({name: value for name, value in said.items() if value})
        values = {
            "tenant_id": caller.tenant_id,
            "route": key.route,
            "key": key.key,
            "fingerprint": key.fingerprint,
            "answer": answer,
            "open_limit": self._open_limit,
            "id": identifier,
            "state": state.value,
            "source": asked.source.value,
            "category": asked.category,
            "priority": int(asked.priority),
            "channels": [channel.value for channel in asked.channels],
            "template": shared.template,
            "template_version": shared.template_version,
            "sealed": self._vault.seal(context("batch", caller.tenant_id, identifier), plain),
            "metadata": _json(asked.metadata),
            "segment": _json(asked.segment),
            "scheduled_at": asked.scheduled_at,
            "expires_in": asked.expires_in,
            "canary": _json(None if asked.canary is None else asdict(asked.canary)),
            "canary_state": (CanaryState.NONE if asked.canary is None else CanaryState.AHEAD).value,
            "total": total,
            "upload_format": "ndjson" if asked.source is Source.RECIPIENTS else asked.upload_format,
            "upload_length": len(listed),
            "created_by": caller.subject,
            "created_at": created_at,
            **as_parts(self._vault, caller.tenant_id, identifier, 0, listed),
        }
        stored, kept = self._pool.run(lambda cursor: batches.create(cursor, values))
        if stored is not None:
            _log.info("batch_accepted", tenant_id=caller.tenant_id, batch_id=identifier, source=asked.source.value)
            if state is BatchState.ACCEPTED:
                self._wake()
            return Answer(stored, is_replay=False)
        if kept is None:
            raise Refused(
                "DOMAIN_BATCH_LIMIT",
                f"The tenant has {self._open_limit} batches that have not ended; wait for one, or cancel one.",
            )
        if kept.fingerprint != key.fingerprint:
            raise Refused("DOMAIN_IDEMPOTENCY_KEY_REUSED", "This Idempotency-Key belongs to another request.")
        metrics.REPLAYED.inc()
        return Answer(kept.answer, is_replay=True)


def _as_one(asked: BatchSubmission) -> Submission:
    """Return the batch as one notification to nobody in particular, which is checked as any other is."""
    return Submission(
        user_id="",
        category=asked.category,
        priority=asked.priority,
        channels=asked.channels,
        title=asked.title,
        body=asked.body,
        recipients={},
        metadata=asked.metadata,
        payload=asked.payload,
        scheduled_at=asked.scheduled_at,
        expires_in=asked.expires_in,
        html=asked.html,
        template=asked.template,
    )


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
