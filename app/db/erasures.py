"""Erasures: a user's record goes at once, what was sent to them in chunks behind it, and the ledger stays true.

No row of the pipeline is removed. A notification loses what it said, to whom, and its metadata; a delivery and its
attempts lose the texts of their errors; both get a pseudonym in the place of the user's id. What has not begun is
CANCELLED before its content goes, what is in flight is asked to end.

A chunk is one transaction that holds the lock of its job's row: two processes never erase for the same user at
once, and one that is killed leaves the job where its last chunk ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Connection

from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.domain.ids import siblings

_SHOWN = "id::text, status, notifications, cancelled, requested_at, finished_at"

# A second request while the first one's job runs makes that job begin again, since the user may have come back and
# been sent something in between. The job looks at the record no more, so a user who is created anew right after
# this keeps the new one.
BEGIN = f"""
WITH gone AS (
    DELETE FROM app_user WHERE tenant_id = %(tenant_id)s AND id = %(user_id)s
), chosen AS (
    DELETE FROM preference_set WHERE tenant_id = %(tenant_id)s AND user_id = %(user_id)s
)
INSERT INTO erasure (tenant_id, id, user_id) VALUES (%(tenant_id)s, %(id)s::uuid, %(user_id)s)
ON CONFLICT (tenant_id, user_id) WHERE status = 'RUNNING' DO UPDATE
SET requested_at = now(), pass_at = now(), next_at = now(),
    after_id = '00000000-0000-0000-0000-000000000000', has_left = false
RETURNING {_SHOWN}
"""  # noqa: S608  put together of constants

FIND = f"SELECT {_SHOWN} FROM erasure WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid"  # noqa: S608

TAKE = """
SELECT tenant_id, id::text, user_id, after_id, has_left, requested_at,
       extract(epoch FROM pass_at - requested_at)::float8
FROM erasure
WHERE status = 'RUNNING' AND next_at <= now()
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED
"""

# Only what was accepted until the request, give or take the clocks of the API's machines: whoever comes back under
# the same id keeps what is sent to them from then on.
CHUNK = """
SELECT id FROM notification
WHERE tenant_id = %(tenant_id)s AND user_id = %(user_id)s AND id > %(after)s::uuid AND id < %(below)s::uuid
ORDER BY id
LIMIT %(limit)s
"""

# As one cancels a notification: locked in the order of the ids, compared with what the lock returned.
CANCEL = """
WITH target AS MATERIALIZED (
    SELECT id, notification_id, status FROM delivery
    WHERE id BETWEEN %(low)s::uuid AND %(high)s::uuid AND notification_id = ANY(%(ids)s::uuid[])
    ORDER BY id FOR UPDATE
), cancelled AS (
    UPDATE delivery d
    SET status = 'CANCELLED', cancel_requested_at = now(), updated_at = now()
    FROM target t
    WHERE d.id = t.id AND d.id BETWEEN %(low)s::uuid AND %(high)s::uuid
      AND t.status IN ('PENDING', 'QUEUED')
    RETURNING d.id
), asked AS (
    UPDATE delivery d
    SET cancel_requested_at = now(), updated_at = now()
    FROM target t
    WHERE d.id = t.id AND d.id BETWEEN %(low)s::uuid AND %(high)s::uuid
      AND t.status IN ('SENDING', 'UNKNOWN') AND d.cancel_requested_at IS NULL
    RETURNING d.id
)
SELECT (SELECT count(*) FROM cancelled),
       (SELECT coalesce(array_agg(DISTINCT notification_id::text), '{}') FROM target
        WHERE status IN ('SENDING', 'UNKNOWN')),
       (SELECT count(*) FROM asked)
"""

# What is in flight keeps the user's id, by which a later pass finds it: its worker still has texts to write.
# A step that waits would make a delivery under the user's id. Whoever locks both, locks steps first.
STEPS = """
DELETE FROM fallback_step WHERE notification_id = ANY(%(ids)s::uuid[])
"""

ERASE = """
WITH said AS (
    UPDATE notification n
    SET sealed = NULL, metadata = '{}', decision = '{}', scheduled_local = NULL, supersede_key = NULL,
        locale = NULL,
        user_id = CASE WHEN n.id = ANY(%(busy)s::uuid[]) THEN n.user_id ELSE %(pseudonym)s END
    WHERE n.id = ANY(%(ids)s::uuid[]) AND n.id BETWEEN %(low)s::uuid AND %(high)s::uuid
    RETURNING n.id
), sent AS (
    UPDATE delivery d
    SET user_id = %(pseudonym)s, last_error = NULL, device_id = NULL, early_receipt = NULL, supersede_key = NULL
    WHERE d.id BETWEEN %(low)s::uuid AND %(high)s::uuid AND d.notification_id = ANY(%(ids)s::uuid[])
      AND d.notification_id <> ALL(%(busy)s::uuid[])
    RETURNING d.id
), tried AS (
    UPDATE attempt a
    SET detail = NULL
    WHERE a.delivery_id BETWEEN %(low)s::uuid AND %(high)s::uuid AND a.detail IS NOT NULL
      AND a.delivery_id IN (SELECT d.id FROM delivery d
                            WHERE d.id BETWEEN %(low)s::uuid AND %(high)s::uuid
                              AND d.notification_id = ANY(%(ids)s::uuid[]))
)
SELECT count(*) FROM said
"""

PROGRESS = """
UPDATE erasure
SET after_id = %(after)s::uuid, has_left = has_left OR %(has_left)s, next_at = now(),
    notifications = notifications + %(notifications)s, cancelled = cancelled + %(cancelled)s
WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid
"""

AGAIN = """
UPDATE erasure
SET after_id = '00000000-0000-0000-0000-000000000000', has_left = false,
    next_at = now() + make_interval(secs => %(pause_seconds)s),
    pass_at = now() + make_interval(secs => %(pause_seconds)s)
WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid
"""

FINISH = """
UPDATE erasure SET status = 'DONE', finished_at = now(), user_id = %(pseudonym)s
WHERE tenant_id = %(tenant_id)s AND id = %(id)s::uuid
"""

# A person's own idempotency keys carry the id in their route. Gone with them is only the protection against a
# repetition by somebody who is not there any more.
_KEYS = """
DELETE FROM idempotency_key
WHERE tenant_id = %(tenant_id)s AND route = 'POST /v1/notifications of ' || %(user_id)s
"""

_BATCH_ERRORS = "DELETE FROM batch_error WHERE tenant_id = %(tenant_id)s AND user_id = %(user_id)s"
_HITS = "DELETE FROM frequency_hit WHERE tenant_id = %(tenant_id)s AND user_id = %(user_id)s"
# Whoever comes back under the same id keeps the steps of what is sent to them from then on.
_STEPS = """
DELETE FROM fallback_step s
WHERE s.tenant_id = %(tenant_id)s AND s.user_id = %(user_id)s
  AND NOT EXISTS (SELECT FROM notification n WHERE n.id = s.notification_id AND n.user_id = s.user_id)
"""

OF_USER = (_KEYS, _BATCH_ERRORS, _HITS, _STEPS)
"""What else is kept of a user, beside the record and what was sent: a statement for each table, with `tenant_id`
and `user_id`. A table that gets a user's id gets its line here."""


@dataclass(frozen=True, slots=True)
class ErasureRow:
    """A job as its tenant sees it."""

    id: str
    status: str
    notifications: int
    cancelled: int
    requested_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job whose row this transaction has locked. `waited_seconds` lie between the request and this pass."""

    tenant_id: str
    id: str
    user_id: str
    after: Any
    has_left: bool
    requested_at: datetime
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class Erased:
    """What one chunk did. `busy` are the notifications that have deliveries in flight."""

    cancelled: int
    busy: int


def begin(cursor: Cursor, tenant_id: str, user_id: str, identifier: str) -> ErasureRow:
    """Remove a user's record and store the job, or widen the one that runs."""
    run_as_tenant(cursor, BEGIN, {"tenant_id": tenant_id, "user_id": user_id, "id": identifier})
    (row,) = cursor.fetchall()
    return ErasureRow(*row)


def find(cursor: Cursor, tenant_id: str, identifier: str) -> ErasureRow | None:
    """Return a tenant's job, or None."""
    run_as_tenant(cursor, FIND, {"tenant_id": tenant_id, "id": identifier})
    row = cursor.fetchone()
    return None if row is None else ErasureRow(*row)


def take(connection: Connection) -> Job | None:
    """Lock the job that waits longest and that nobody else has; None when there is none to do now."""
    row = connection.exec_driver_sql(TAKE).first()
    return None if row is None else Job(*row)


def chunk(connection: Connection, job: Job, below: str, limit: int) -> list[Any]:
    """Return the ids of the next notifications of a job, in order."""
    values = {
        "tenant_id": job.tenant_id,
        "user_id": job.user_id,
        "after": str(job.after),
        "below": below,
        "limit": limit,
    }
    return list(connection.exec_driver_sql(CHUNK, values).scalars())


def erase(connection: Connection, ids: list[Any], pseudonym: str) -> Erased:
    """Cancel what has not begun of these notifications, and erase what they say."""
    low, high = siblings(ids[0])[0], siblings(ids[-1])[1]
    values: dict[str, Any] = {"ids": [str(each) for each in ids], "low": str(low), "high": str(high)}
    connection.exec_driver_sql(STEPS, values)
    cancelled, busy, _ = connection.exec_driver_sql(CANCEL, values).one()
    connection.exec_driver_sql(ERASE, values | {"busy": busy, "pseudonym": pseudonym})
    return Erased(cancelled, len(busy))


def progress(connection: Connection, job: Job, after: Any, erased: Erased, notifications: int) -> None:
    """Note how far a job has come."""
    values = {
        "tenant_id": job.tenant_id,
        "id": job.id,
        "after": str(after),
        "has_left": erased.busy > 0,
        "notifications": notifications,
        "cancelled": erased.cancelled,
    }
    connection.exec_driver_sql(PROGRESS, values)


def again(connection: Connection, job: Job, pause_seconds: float) -> None:
    """Let a job begin another pass after a pause."""
    connection.exec_driver_sql(AGAIN, {"tenant_id": job.tenant_id, "id": job.id, "pause_seconds": pause_seconds})


def finish(connection: Connection, job: Job, pseudonym: str) -> None:
    """Remove the rest of what is kept of the user, their id in the job included."""
    values: Mapping[str, str] = {"tenant_id": job.tenant_id, "user_id": job.user_id}
    for statement in OF_USER:
        connection.exec_driver_sql(statement, dict(values))
    connection.exec_driver_sql(FINISH, {"tenant_id": job.tenant_id, "id": job.id, "pseudonym": pseudonym})
