"""Accepting, reading and cancelling notifications: all SQL that a tenant's request runs.

Each function sends one message of several statements over an autocommit connection. PostgreSQL runs such a message
as one transaction, held to its tenant by `app.db.tenancy` whatever the WHERE clause says, and a request costs one
round trip. The message is the whole transaction; a use case never needs a second one. A caller who may touch only
one user's notifications is held to them by the WHERE clause: to such a caller, others do not exist.

A look-up by notification id names the range of ids minted in the same millisecond, so it reads one partition of
each table.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.db import fallback, supersede
from app.db.audit import entry_of
from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant
from app.db.turns import TAKE_TURNS
from app.domain.ids import siblings
from app.domain.kinds import Priority

# The idempotency key guards everything: a request that races with another of the same key waits for it at the
# primary key, inserts nothing if the other commits, and everything if the other rolls back. Due times are the
# database's. The answer depends on them (an in-app delivery that is due now is delivered by being stored), so the
# caller passes both answers and the statement keeps the right one.
_STORE = """
WITH given AS (
    SELECT %(tenant_id)s AS tenant_id, %(id)s::uuid AS id, %(user_id)s AS user_id,
           %(priority)s::smallint AS priority, %(scheduled_at)s::timestamptz AS scheduled_at,
           %(created_at)s::timestamptz AS created_at,
           greatest(%(scheduled_at)s::timestamptz, now()) AS due_at,
           greatest(%(scheduled_at)s::timestamptz, now()) + make_interval(secs => %(expires_in)s) AS expires_at,
           %(supersede_key)s AS supersede_key, %(steps)s::json AS steps,
           %(is_ordered)s AS is_ordered
), claimed AS (
    INSERT INTO idempotency_key (tenant_id, route, key, fingerprint, notification_id, answer)
    SELECT tenant_id, %(route)s, %(key)s, %(fingerprint)s, id,
           CASE WHEN due_at > now() THEN %(answer_later)s ELSE %(answer)s END
    FROM given
    ON CONFLICT DO NOTHING
    RETURNING answer
), stored AS (
    INSERT INTO notification (id, tenant_id, user_id, category, priority, template, template_version, locale,
                              sealed, metadata, suppressed, decision, scheduled_local, delivery_count,
                              scheduled_at, expires_at, created_at, inbox_at,
                              supersede_key)
    SELECT id, tenant_id, user_id, %(category)s, priority, %(template)s, %(template_version)s, %(locale)s,
           %(sealed)s, %(metadata)s::jsonb, %(suppressed)s::jsonb, %(decision)s::jsonb,
           %(scheduled_local)s::jsonb, %(delivery_count)s, scheduled_at, expires_at,
           created_at,
           (SELECT now()
            FROM unnest(%(channels)s::text[], %(held_until)s::timestamptz[]) AS d (channel, held_until)
            WHERE d.channel = 'IN_APP' AND greatest(due_at, d.held_until) <= now() LIMIT 1),
           supersede_key
    FROM given, claimed
), made AS (
    INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, device_id, priority, status,
                          attempts_allowed, next_attempt_at, relay_at, error_code, delivered_at, expires_at,
                          created_at, supersede_key, fallback_step, order_at)
    SELECT d.id, g.id, g.tenant_id, g.user_id, d.channel, d.device_id, g.priority,
           CASE WHEN d.channel = 'IN_APP' AND due.at <= now() THEN 'DELIVERED' ELSE 'PENDING' END,
           %(attempts_allowed)s, due.at, due.at, CASE WHEN d.held_until > g.due_at THEN 'quiet_hours' END,
           CASE WHEN d.channel = 'IN_APP' AND due.at <= now() THEN now() END, g.expires_at, g.created_at,
           g.supersede_key, d.step, CASE WHEN g.is_ordered THEN due.at END
    FROM given g, claimed,
         unnest(%(delivery_ids)s::uuid[], %(channels)s::text[], %(device_ids)s::uuid[],
                %(held_until)s::timestamptz[], %(fallback_steps)s::smallint[])
             AS d (id, channel, device_id, held_until, step),
         LATERAL (SELECT greatest(g.due_at, d.held_until) AS at) AS due
)"""
_ANSWER = """
SELECT claimed.answer, given.due_at <= now() AS is_due FROM claimed, given
"""
ACCEPT = _STORE + _ANSWER
ACCEPT_CHAIN = _STORE + fallback.STEPS.format(given="given g, claimed") + _ANSWER

FIND_KEY = """
SELECT fingerprint, answer FROM idempotency_key
WHERE tenant_id = %(tenant_id)s AND route = %(route)s AND key = %(key)s
"""

# One parameter carries all rows: the server unpacks a JSON array faster than the client can quote a thousand
# values. What is empty is left out of it, and the id tells the instant, since reading JSON is half of the work.
_STORE_MANY = """
WITH given AS MATERIALIZED (
    SELECT g.*, uuid_extract_timestamp(g.id) AS created_at, greatest(g.scheduled_at, now()) AS due_at,
           greatest(g.scheduled_at, now()) + make_interval(secs => g.expires_in) AS expires_at
    FROM json_to_recordset(%(rows)s::json) AS g (
        id uuid, user_id text, category text, priority smallint, template text, template_version integer,
        locale text, sealed bytea, metadata jsonb, suppressed jsonb, decision jsonb, scheduled_local jsonb,
        scheduled_at timestamptz, expires_in double precision, delivery_ids uuid[], channels text[],
        device_ids uuid[], held_until timestamptz[], supersede_key text,
        fallback_steps smallint[], steps json, is_ordered boolean)
), stored AS (
    INSERT INTO notification (id, tenant_id, user_id, category, priority, template, template_version, locale,
                              sealed, metadata, suppressed, decision, scheduled_local, delivery_count,
                              scheduled_at, expires_at, created_at, batch_id, inbox_at,
                              supersede_key)
    SELECT id, %(tenant_id)s, user_id, category, priority, template, template_version, locale, sealed,
           coalesce(metadata, '{}'), coalesce(suppressed, '[]'), coalesce(decision, '[]'), scheduled_local,
           cardinality(channels), scheduled_at, expires_at, created_at, %(batch_id)s::uuid,
           CASE WHEN 'IN_APP' = ANY(channels) THEN
               (SELECT now() FROM unnest(channels, held_until) AS d (channel, held_until)
                WHERE d.channel = 'IN_APP' AND greatest(due_at, d.held_until) <= now() LIMIT 1) END,
           supersede_key
    FROM given
), made AS (
    INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, device_id, priority, status,
                          attempts_allowed, next_attempt_at, relay_at, error_code, delivered_at, expires_at,
                          created_at, supersede_key, fallback_step, order_at)
    SELECT d.id, g.id, %(tenant_id)s, g.user_id, d.channel, d.device_id, g.priority,
           CASE WHEN d.channel = 'IN_APP' AND due.at <= now() THEN 'DELIVERED' ELSE 'PENDING' END,
           %(attempts_allowed)s, due.at, due.at, CASE WHEN d.held_until > g.due_at THEN 'quiet_hours' END,
           CASE WHEN d.channel = 'IN_APP' AND due.at <= now() THEN now() END, g.expires_at, g.created_at,
           g.supersede_key, d.step, CASE WHEN g.is_ordered THEN due.at END
    FROM given g,
         unnest(g.delivery_ids, g.channels, g.device_ids, g.held_until, g.fallback_steps)
             AS d (id, channel, device_id, held_until, step),
         LATERAL (SELECT greatest(g.due_at, d.held_until) AS at) AS due
)"""
_PRIORITIES = """
SELECT DISTINCT priority FROM given WHERE due_at <= now() AND cardinality(channels) > 0
"""
ACCEPT_MANY = _STORE_MANY + _PRIORITIES
ACCEPT_MANY_CHAINS = _STORE_MANY + fallback.STEPS.format(given="given g") + _PRIORITIES

READ = """
SELECT n.id::text, n.user_id, n.category, n.priority, n.template, n.template_version, n.locale, n.sealed,
       n.metadata, n.suppressed, n.decision, n.scheduled_local, n.scheduled_at, n.expires_at, n.created_at,
       n.inbox_at, n.seen_at, n.read_at, n.archived_at, n.deleted_at, n.supersede_key,
       n.batch_id::text,
       (SELECT b.sealed FROM batch b WHERE b.tenant_id = n.tenant_id AND b.id = n.batch_id) AS batch_sealed,
       (SELECT coalesce(json_agg(d ORDER BY d.id), '[]') FROM (
            SELECT id, channel, device_id, status, attempts, next_attempt_at, provider, provider_message_id,
                   error_code, last_error, uncertain, cancel_requested_at, sent_at, delivered_at, expires_at
            FROM delivery
            WHERE id BETWEEN %(low)s::uuid AND %(high)s::uuid
              AND notification_id = %(id)s::uuid) AS d) AS deliveries,
       (SELECT json_agg(s ORDER BY s.step) FROM (
            SELECT step, channel, status, reason, after_seconds, check_at, decided_at
            FROM fallback_step WHERE tenant_id = n.tenant_id AND notification_id = %(id)s::uuid) AS s) AS steps,
       (SELECT coalesce(json_agg(a ORDER BY a.delivery_id, a.number), '[]') FROM (
            SELECT delivery_id, number, provider, outcome, code, detail, started_at, duration_ms
            FROM attempt
            WHERE delivery_id BETWEEN %(low)s::uuid AND %(high)s::uuid
              AND delivery_id IN (SELECT id FROM delivery
                                  WHERE id BETWEEN %(low)s::uuid AND %(high)s::uuid
                                    AND notification_id = %(id)s::uuid)) AS a) AS attempts
FROM notification n
WHERE n.id = %(id)s::uuid AND (%(user_id)s::text IS NULL OR n.user_id = %(user_id)s::text)
  AND (n.deleted_at IS NULL OR %(with_deleted)s)
"""

_CANCELLED = """jsonb_build_object('cancelled', (SELECT count(*) FROM cancelled),
                              'asked_to_end', (SELECT count(*) FROM asked))"""

# The rows are locked in id order and waited for, as every writer of several deliveries does, so that no two of
# them can wait for each other. What the lock returns is the newest state, so both updates ask `t.status`: a row
# whose claim committed while this statement waited is still PENDING in the snapshot that they scan `d` with.
CANCEL = f"""
WITH target AS MATERIALIZED (
    SELECT id, channel, status FROM delivery
    WHERE id BETWEEN %(low)s::uuid AND %(high)s::uuid AND notification_id = %(id)s::uuid
      AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s::text)
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
), touched AS (
    SELECT id FROM cancelled UNION ALL SELECT id FROM asked
), {entry_of("touched", changes=_CANCELLED)}
SELECT t.id::text, t.channel, t.status, c.id IS NOT NULL AS is_cancelled
FROM notification n
LEFT JOIN target t ON true
LEFT JOIN cancelled c ON c.id = t.id
WHERE n.id = %(id)s::uuid AND (%(user_id)s::text IS NULL OR n.user_id = %(user_id)s::text)
  AND (n.deleted_at IS NULL OR %(with_deleted)s)
ORDER BY t.id
"""  # noqa: S608  put together of constants


@dataclass(frozen=True, slots=True)
class Stored:
    """What a first accept wrote: the answer that replays will give, and whether it is due now.

    `called_off` counts deliveries that it superseded, `asked_to_end` those of them that are being sent.
    """

    answer: str
    is_due: bool
    called_off: int = 0
    asked_to_end: int = 0


@dataclass(frozen=True, slots=True)
class Bulk:
    """What a bulk accept stores: `rows` is a JSON array of objects with the columns of `ACCEPT_MANY`.

    `keys` are the users and keys that they supersede, `since` is their least id; `has_chains` when any has steps.
    """

    rows: str
    attempts_allowed: int
    keys: Collection[tuple[str, str]] = ()
    since: str = ""
    has_chains: bool = False
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredMany:
    """What a bulk accept wrote: the priorities that may have something due now, and what it superseded."""

    due: list[int]
    called_off: int = 0
    asked_to_end: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier request left under an idempotency key."""

    fingerprint: bytes
    answer: str


@dataclass(frozen=True, slots=True)
class Found:
    """One delivery as a request to cancel found it; `id` is None for a notification without any."""

    id: str | None
    channel: str
    status: str
    is_cancelled: bool


def accept(cursor: Cursor, row: Mapping[str, Any]) -> Stored | None:
    """Store one notification, its deliveries and its key; None when the key is taken, and nothing was stored."""
    accepting = ACCEPT if row["steps"] is None else ACCEPT_CHAIN
    if row["supersede_key"] is None:
        run_as_tenant(cursor, accepting, row)
    else:
        pair = (row["user_id"], row["supersede_key"])
        values = {**supersede.values_of(row["tenant_id"], [pair], row["id"]), **row}
        run_as_tenant(cursor, f"{TAKE_TURNS}{accepting};{fallback.DROP_SUPERSEDED}{supersede.SUPERSEDE}", values)
    stored = cursor.fetchone()
    return None if stored is None or stored[0] is None else Stored(*stored)


def accept_many(cursor: Cursor, tenant_id: str, bulk: Bulk) -> StoredMany:
    """Store many notifications of one tenant set-wise. The caller guards against a second call."""
    values: dict[str, Any] = {
        "tenant_id": tenant_id,
        "rows": bulk.rows,
        "attempts_allowed": bulk.attempts_allowed,
        "batch_id": bulk.batch_id,
    }
    accepting = ACCEPT_MANY_CHAINS if bulk.has_chains else ACCEPT_MANY
    if not bulk.keys:
        run_as_tenant(cursor, accepting, values)
        return StoredMany([priority for (priority,) in cursor])
    values |= supersede.values_of(tenant_id, bulk.keys, bulk.since)
    run_as_tenant(cursor, f"{TAKE_TURNS}{accepting};{fallback.DROP_SUPERSEDED}{supersede.SUPERSEDE}", values)
    (_, _, called_off, asked_to_end) = cursor.fetchone() or (None, None, 0, 0)
    return StoredMany(list(Priority), called_off, asked_to_end)


def find_key(cursor: Cursor, tenant_id: str, route: str, key: str) -> Kept | None:
    """Return what was stored under an idempotency key, or None."""
    run_as_tenant(cursor, FIND_KEY, {"tenant_id": tenant_id, "route": route, "key": key})
    row = cursor.fetchone()
    return None if row is None else Kept(bytes(row[0]), row[1])


def read(
    cursor: Cursor, tenant_id: str, identifier: UUID, user_id: str | None, *, with_deleted: bool = False
) -> dict[str, Any] | None:
    """Return a notification by column name, with `deliveries` and `attempts` as lists of objects, or None.

    With a `user_id`, one of another user is not found; one that was deleted only `with_deleted`.
    """
    run_as_tenant(cursor, READ, _look_up(tenant_id, identifier, user_id) | {"with_deleted": with_deleted})
    row = cursor.fetchone()
    return (
        None if row is None else dict(zip((column.name for column in cursor.description or ()), row, strict=True))
    )


def cancel(
    cursor: Cursor, tenant_id: str, identifier: UUID, user_id: str | None, entry: Mapping[str, Any]
) -> list[Found]:
    """Cancel what has not begun and ask for the rest; no row for no such id, one without an id for no delivery.

    With a `user_id`, one of another user is not found and stays as it is. `entry` goes into the audit log, if
    anything was changed.
    """
    values = _look_up(tenant_id, identifier, user_id) | {"with_deleted": False}
    run_as_tenant(cursor, f"{fallback.DROP}{CANCEL}", {**values, **entry})
    return [Found(*row) for row in cursor]


def _look_up(tenant_id: str, identifier: UUID, user_id: str | None) -> dict[str, Any]:
    low, high = siblings(identifier)
    return {
        "tenant_id": tenant_id,
        "id": str(identifier),
        "low": str(low),
        "high": str(high),
        "user_id": user_id,
    }
