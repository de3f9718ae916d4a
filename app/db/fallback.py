"""Fallback: the steps of a chain, and what decides about the next one.

A step is a channel with the ids of its deliveries, minted when the notification was. The first is made by the
accept. Each other waits; a trigger leaves a row in `fallback_wake` whenever a delivery of the step before it ends,
in the transaction that ends it, and `check_at` is when it is looked at without that. Invariants:

* A step is decided once: its row is locked and must still be WAITING. Its deliveries have fixed ids, so they
  cannot be made twice either.
* What is promised and what exists change in one statement: `delivery_count` with the deliveries, whose
  `created_at` is the notification's, so that the ledger holds at every instant.
* Locks are taken in this order: turns, steps, deliveries, notifications; steps in the order of their keys.
"""

from dataclasses import dataclass

from sqlalchemy.engine import Connection

# Appended to the statements that accept: `g` is what they store.
STEPS = """
, steps AS (
    INSERT INTO fallback_step (tenant_id, notification_id, step, user_id, channel, status, reason, delivery_ids,
                               device_ids, after_seconds, check_at, decided_at, supersede_key)
    SELECT %(tenant_id)s, g.id, s.step, g.user_id, s.channel, CASE s.step WHEN 0 THEN 'MADE' ELSE 'WAITING' END,
           CASE s.step WHEN 0 THEN 'first' END, s.delivery_ids, s.device_ids, s.after_seconds,
           CASE s.step WHEN 1 THEN greatest(g.due_at, s.held_until) + make_interval(secs => s.after_seconds) END,
           CASE s.step WHEN 0 THEN now() END, g.supersede_key
    FROM {given}, json_to_recordset(g.steps) AS s (
        step smallint, channel text, delivery_ids uuid[], device_ids uuid[], after_seconds double precision,
        held_until timestamptz)
)"""

# Every wake that this statement sees was committed together with the end that it tells of: that is seen too. A
# wake that is locked is being worked on; one that comes later is for the next round.
ADVANCE = """
WITH woken AS (
    DELETE FROM fallback_wake w
    USING (SELECT tenant_id, id FROM fallback_wake ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS p
    WHERE w.tenant_id = p.tenant_id AND w.id = p.id
    RETURNING w.tenant_id, w.notification_id, w.step
), due AS (
    SELECT tenant_id, notification_id, step FROM fallback_step
    WHERE status = 'WAITING' AND check_at <= now() ORDER BY check_at LIMIT %(limit)s
), step AS MATERIALIZED (
    SELECT s.*
    FROM fallback_step s
    JOIN (SELECT * FROM woken UNION SELECT * FROM due) AS c USING (tenant_id, notification_id, step)
    WHERE s.status = 'WAITING'
    ORDER BY s.tenant_id, s.notification_id, s.step FOR UPDATE OF s
), before AS (
    SELECT s.tenant_id, s.notification_id, s.step,
           coalesce(bool_or(d.status = 'DELIVERED'), false) AS is_delivered,
           coalesce(bool_or(d.status = 'CANCELLED' AND d.cancel_requested_at IS NOT NULL), false) AS is_cancelled,
           coalesce(bool_or(d.status = 'EXPIRED'), false) AS is_expired,
           coalesce(bool_and(d.status IN ('FAILED', 'CANCELLED')) FILTER (WHERE e.step = s.step - 1), false)
               AS has_failed
    FROM step s
    JOIN fallback_step e ON e.tenant_id = s.tenant_id AND e.notification_id = s.notification_id
                        AND e.step < s.step
    CROSS JOIN LATERAL unnest(e.delivery_ids) AS i (id)
    LEFT JOIN delivery d ON d.id = i.id
    GROUP BY 1, 2, 3
), decided AS MATERIALIZED (
    SELECT s.tenant_id, s.notification_id, s.step, s.channel, s.delivery_ids, s.device_ids, s.user_id, n.priority,
           n.expires_at, n.created_at, s.supersede_key,
           CASE WHEN n.id IS NULL THEN 'gone'
                WHEN b.is_delivered THEN 'delivered'
                WHEN b.is_cancelled THEN 'cancelled'
                WHEN b.is_expired OR n.expires_at <= now() THEN 'expired'
                WHEN b.has_failed THEN 'failed'
                WHEN s.check_at <= now() THEN 'not_delivered' END AS reason
    FROM step s
    JOIN before b USING (tenant_id, notification_id, step)
    LEFT JOIN notification n ON n.id = s.notification_id
), made AS (
    INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, device_id, priority, status,
                          attempts_allowed, next_attempt_at, relay_at, expires_at, created_at, supersede_key,
                          fallback_step)
    SELECT i.id, x.notification_id, x.tenant_id, x.user_id, x.channel, i.device_id, x.priority, 'PENDING',
           %(attempts_allowed)s, now(), now(), x.expires_at, x.created_at, x.supersede_key, x.step
    FROM decided x, unnest(x.delivery_ids, x.device_ids) AS i (id, device_id)
    WHERE x.reason IN ('failed', 'not_delivered')
    RETURNING notification_id
), promised AS (
    UPDATE notification n SET delivery_count = n.delivery_count + m.count
    FROM (SELECT notification_id, count(*) AS count FROM made GROUP BY 1) AS m
    WHERE n.id = m.notification_id
), written AS (
    UPDATE fallback_step s
    SET status = CASE WHEN s.step > x.step AND x.reason IN ('failed', 'not_delivered') THEN 'WAITING'
                      WHEN x.reason IN ('failed', 'not_delivered') THEN 'MADE' ELSE 'DROPPED' END,
        reason = CASE WHEN s.step > x.step AND x.reason IN ('failed', 'not_delivered') THEN NULL
                      ELSE x.reason END,
        decided_at = CASE WHEN s.step > x.step AND x.reason IN ('failed', 'not_delivered') THEN NULL
                          ELSE now() END,
        check_at = CASE WHEN s.step = x.step + 1 AND x.reason IN ('failed', 'not_delivered')
                        THEN now() + make_interval(secs => s.after_seconds) ELSE s.check_at END
    FROM decided x
    WHERE s.tenant_id = x.tenant_id AND s.notification_id = x.notification_id AND s.step >= x.step
      AND s.status = 'WAITING' AND x.reason IS NOT NULL
)
SELECT x.reason, x.channel, x.priority, (SELECT count(*) FROM woken) + (SELECT count(*) FROM due)
FROM (SELECT) AS one LEFT JOIN decided x ON x.reason IS NOT NULL
"""

# It comes before the statement that cancels, and so waits for a step that is being made right now: that statement
# then sees its deliveries.
DROP = """
WITH waiting AS MATERIALIZED (
    SELECT s.step FROM fallback_step s
    WHERE s.tenant_id = %(tenant_id)s AND s.notification_id = %(id)s::uuid AND s.status = 'WAITING'
      AND (%(user_id)s::text IS NULL OR s.user_id = %(user_id)s::text)
    ORDER BY s.step FOR UPDATE
)
UPDATE fallback_step s SET status = 'DROPPED', reason = 'cancelled', decided_at = now()
FROM waiting w
WHERE s.tenant_id = %(tenant_id)s AND s.notification_id = %(id)s::uuid AND s.step = w.step;
"""

DROP_SUPERSEDED = """
WITH waiting AS MATERIALIZED (
    SELECT s.notification_id, s.step
    FROM fallback_step s
    JOIN unnest(%(key_users)s::text[], %(keys)s::text[]) AS k (user_id, supersede_key)
         USING (user_id, supersede_key)
    WHERE s.tenant_id = %(tenant_id)s AND s.status = 'WAITING' AND s.supersede_key IS NOT NULL
      AND EXISTS (SELECT FROM notification n
                  WHERE n.tenant_id = %(tenant_id)s AND n.user_id = s.user_id AND n.supersede_key = s.supersede_key
                    AND n.id > s.notification_id AND n.id >= %(since)s::uuid)
    ORDER BY s.notification_id, s.step FOR UPDATE OF s
)
UPDATE fallback_step s SET status = 'DROPPED', reason = 'superseded', decided_at = now()
FROM waiting w
WHERE s.tenant_id = %(tenant_id)s AND s.notification_id = w.notification_id AND s.step = w.step;
"""

PRUNE = """
DELETE FROM fallback_step WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM fallback_step WHERE notification_id < %(before)s::uuid
    LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """A step that was decided: made because the one before `failed` or was `not_delivered`, else dropped."""

    reason: str
    channel: str
    priority: int | None

    @property
    def is_made(self) -> bool:
        """Whether its deliveries exist now."""
        return self.reason in {"failed", "not_delivered"}


def advance(connection: Connection, limit: int, attempts_allowed: int) -> tuple[list[Decided], int]:
    """Decide up to `limit` woken and `limit` due steps; return the decided ones, and how many were looked at."""
    values = {"limit": limit, "attempts_allowed": attempts_allowed}
    rows = connection.exec_driver_sql(ADVANCE, values).fetchall()
    return [Decided(row[0], row[1], row[2]) for row in rows if row[0] is not None], rows[0][3]


def prune(connection: Connection, before: str, batch: int) -> int:
    """Delete up to `batch` steps of notifications with ids below `before`; return how many."""
    return connection.exec_driver_sql(PRUNE, {"before": before, "batch": batch}).rowcount
