"""Statements that bring rows back from dead calls, decide doubtful ones, expire late ones and take receipts in.

Sweeps first lock a bounded number of ids with SKIP LOCKED (they never wait, so they cannot deadlock with anyone),
then change exactly these: the constant array of ids prunes the partitions of the second statement. Both run in one
transaction of the caller. A receipt changes one row and waits for its lock.
"""

import json
from collections.abc import Sequence

from sqlalchemy.engine import Connection

from app.db.deliveries import uuids
from app.domain.kinds import Channel, Priority

STALE_SENDING = """
SELECT d.id::text FROM delivery d
WHERE d.status = 'SENDING' AND d.lease_until < now()
ORDER BY d.lease_until
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""

# The call may have begun, so the row is never simply sent again: it is UNKNOWN, and the call counts.
RESCUE_SENDING = """
WITH u AS (
    UPDATE delivery d
    SET status = CASE d.early_receipt ->> 'kind' WHEN 'positive' THEN 'DELIVERED' WHEN 'negative' THEN 'FAILED'
                      ELSE 'UNKNOWN' END,
        attempts = d.attempts + 1, uncertain = true, lease_until = NULL, early_receipt = NULL, updated_at = now(),
        sent_at = CASE d.early_receipt ->> 'kind' WHEN 'positive' THEN now() ELSE d.sent_at END,
        delivered_at = CASE d.early_receipt ->> 'kind' WHEN 'positive' THEN now() ELSE d.delivered_at END,
        error_code = CASE d.early_receipt ->> 'kind' WHEN 'positive' THEN NULL
                          WHEN 'negative' THEN COALESCE(d.early_receipt ->> 'code', 'undelivered')
                          ELSE 'worker_lost' END,
        last_error = CASE d.early_receipt ->> 'kind' WHEN 'positive' THEN NULL
                          WHEN 'negative' THEN d.early_receipt ->> 'detail'
                          ELSE 'the worker was lost during the call' END,
        next_attempt_at = now() + make_interval(
            secs => CASE d.priority WHEN 0 THEN %(window_high)s ELSE %(window)s END),
        relay_at = now() + make_interval(secs => CASE d.priority WHEN 0 THEN %(window_high)s ELSE %(window)s END)
    FROM delivery o
    WHERE o.id = d.id AND o.id = ANY(%(ids)s::uuid[]) AND d.id = ANY(%(ids)s::uuid[])
      AND d.status = ANY('{SENDING}') AND d.lease_until < now()
    RETURNING d.id, d.attempts, d.tenant_id, d.provider, d.status,
              o.lease_until - make_interval(secs => %(lease_seconds)s) AS started_at
), a AS (
    INSERT INTO attempt (delivery_id, number, tenant_id, provider, outcome, code, detail, started_at, duration_ms)
    SELECT id, attempts, tenant_id, COALESCE(provider, 'none'), 'worker_lost', 'worker_lost', NULL, started_at,
           LEAST(GREATEST(extract(epoch FROM now() - started_at) * 1000, 0), 2147483647)::integer
    FROM u
    ON CONFLICT (delivery_id, number) DO NOTHING
)
SELECT id::text, status FROM u
"""

WINDOW_OVER = """
SELECT d.id::text FROM delivery d
WHERE d.status = 'UNKNOWN' AND d.next_attempt_at < now()
ORDER BY d.next_attempt_at
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""

_RESEND = """(d.channel || ':' || d.priority = ANY(%(resend)s::text[]) AND d.attempts < d.attempts_allowed
              AND (d.expires_at IS NULL OR d.expires_at > now()) AND d.cancel_requested_at IS NULL)"""

# Past its deadline, or called off, it ends FAILED `uncertain` all the same: EXPIRED or CANCELLED would claim that
# nothing was sent.
RESOLVE = f"""
UPDATE delivery d
SET status = CASE WHEN {_RESEND} THEN 'PENDING' ELSE 'FAILED' END,
    error_code = CASE WHEN {_RESEND} THEN d.error_code ELSE 'uncertain' END,
    next_attempt_at = CASE WHEN {_RESEND} THEN now() ELSE d.next_attempt_at END,
    relay_at = CASE WHEN {_RESEND} THEN now() ELSE d.relay_at END,
    updated_at = now()
WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status = 'UNKNOWN' AND d.next_attempt_at < now()
RETURNING d.id::text, d.status
"""  # noqa: S608  only constants of this module are put in

PAST_DEADLINE = """
SELECT d.id::text FROM delivery d
WHERE d.expires_at <= now() AND d.expires_at IS NOT NULL AND d.status IN ('PENDING', 'QUEUED')
ORDER BY d.expires_at
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""

EXPIRE = """
UPDATE delivery d SET status = 'EXPIRED', updated_at = now()
WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED') AND d.expires_at <= now()
RETURNING d.id::text
"""

# While SENDING the receipt waits in the row: the worker still has to count its call, and folds it in.
RECEIPT_POSITIVE = """
UPDATE delivery d
SET early_receipt = CASE WHEN d.lease_until IS NOT NULL THEN %(receipt)s::jsonb END,
    status = CASE WHEN d.lease_until IS NOT NULL THEN d.status ELSE 'DELIVERED' END,
    sent_at = CASE WHEN d.lease_until IS NOT NULL THEN d.sent_at ELSE COALESCE(d.sent_at, now()) END,
    delivered_at = CASE WHEN d.lease_until IS NOT NULL THEN d.delivered_at ELSE now() END,
    error_code = CASE WHEN d.lease_until IS NOT NULL THEN d.error_code END,
    last_error = CASE WHEN d.lease_until IS NOT NULL THEN d.last_error END,
    updated_at = now()
WHERE d.id = %(id)s::uuid
  AND (d.status IN ('SENDING', 'UNKNOWN', 'SENT')
       OR (d.status IN ('PENDING', 'QUEUED') AND d.attempts >= 1)
       OR (d.status IN ('FAILED', 'CANCELLED', 'EXPIRED') AND d.uncertain))
RETURNING d.status
"""

# A negative receipt must be about the very call: of a row that is SENT it names the message that the provider
# took last; of a row whose last answer was lost it may name any message but one of an earlier, known call.
RECEIPT_NEGATIVE = """
UPDATE delivery d
SET early_receipt = CASE WHEN d.lease_until IS NOT NULL THEN %(receipt)s::jsonb END,
    status = CASE WHEN d.lease_until IS NOT NULL THEN d.status ELSE 'FAILED' END,
    error_code = CASE WHEN d.lease_until IS NOT NULL THEN d.error_code ELSE %(code)s END,
    last_error = CASE WHEN d.lease_until IS NOT NULL THEN d.last_error
                      WHEN NOT starts_with(d.user_id, 'erased:') THEN %(detail)s END,
    updated_at = now()
WHERE d.id = %(id)s::uuid
  AND ((d.status = 'SENT' AND d.provider_message_id = %(message_id)s)
       OR (d.status = 'UNKNOWN' AND d.provider_message_id IS DISTINCT FROM %(message_id)s)
       OR (d.status = 'SENDING' AND d.early_receipt IS NULL
           AND d.provider_message_id IS DISTINCT FROM %(message_id)s))
RETURNING d.status
"""


def rescue_sending(
    connection: Connection, limit: int, window_high: float, window: float, lease_seconds: float
) -> list[tuple[str, str]]:
    """Take rows whose lease is over from their dead workers; return (id, new status). Windows are seconds."""
    ids = connection.exec_driver_sql(STALE_SENDING, {"limit": limit}).scalars().all()
    if not ids:
        return []
    found = connection.exec_driver_sql(
        RESCUE_SENDING,
        {"ids": uuids(ids), "window_high": window_high, "window": window, "lease_seconds": lease_seconds},
    )
    return [(row[0], row[1]) for row in found]


def resolve(
    connection: Connection, limit: int, resend: Sequence[tuple[Channel, Priority]]
) -> list[tuple[str, str]]:
    """Decide UNKNOWN rows whose window is over; `resend` names where they are sent again. Return (id, status)."""
    ids = connection.exec_driver_sql(WINDOW_OVER, {"limit": limit}).scalars().all()
    if not ids:
        return []
    keys = [f"{channel.value}:{priority.value}" for channel, priority in resend]
    found = connection.exec_driver_sql(RESOLVE, {"ids": uuids(ids), "resend": keys})
    return [(row[0], row[1]) for row in found]


def expire(connection: Connection, limit: int) -> int:
    """Make PENDING and QUEUED rows whose deadline has passed EXPIRED; return how many."""
    ids = connection.exec_driver_sql(PAST_DEADLINE, {"limit": limit}).scalars().all()
    if not ids:
        return 0
    return len(connection.exec_driver_sql(EXPIRE, {"ids": uuids(ids)}).fetchall())


def receipt(
    connection: Connection,
    delivery_id: str,
    *,
    is_positive: bool,
    message_id: str | None,
    code: str | None = None,
    detail: str | None = None,
) -> str | None:
    """Apply one receipt; return the row's status after it, or None when it changed nothing."""
    kind = "positive" if is_positive else "negative"
    stored = json.dumps({"kind": kind, "message_id": message_id, "code": code, "detail": detail})
    return connection.exec_driver_sql(
        RECEIPT_POSITIVE if is_positive else RECEIPT_NEGATIVE,
        {
            "id": delivery_id,
            "receipt": stored,
            "message_id": message_id,
            "code": code or "undelivered",
            "detail": detail,
        },
    ).scalar_one_or_none()
