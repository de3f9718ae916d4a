"""Superseding: a newer notification of a user takes the place of the older ones with its key.

What is not sent yet is called off, what is being sent is asked to end, and what lies unread in the inbox is
archived. The newest is the one with the greatest id, so a request that comes late under an older id is superseded
on its arrival, by the same statement. Whoever runs it holds the turns of the keys: two that race would otherwise
not see each other's rows, and both would stay.

Rows are locked in id order and waited for, as CANCEL does. What the lock returns is the newest state.
"""

from collections.abc import Iterable

from app.db.turns import in_order, turn

# It runs in one message behind the statement that stored, and so is the one that answers: with what that left
# under the idempotency key, if that is ours. It looks for newer ids from its own on, so it reads today's partition
# and those ahead; for older open rows it asks one partial index a partition, which holds no row that has ended.
SUPERSEDE = """
WITH newest AS MATERIALIZED (
    SELECT k.user_id, k.supersede_key, n.id
    FROM unnest(%(key_users)s::text[], %(keys)s::text[]) AS k (user_id, supersede_key)
    CROSS JOIN LATERAL (
        SELECT n.id FROM notification n
        WHERE n.tenant_id = %(tenant_id)s AND n.user_id = k.user_id AND n.supersede_key = k.supersede_key
          AND n.id >= %(since)s::uuid
        ORDER BY n.id DESC LIMIT 1) AS n
), target AS MATERIALIZED (
    SELECT d.id, d.status
    FROM newest w
    JOIN delivery d ON d.tenant_id = %(tenant_id)s AND d.user_id = w.user_id
                   AND d.supersede_key = w.supersede_key AND d.notification_id < w.id
    WHERE d.status IN ('PENDING', 'QUEUED', 'SENDING', 'UNKNOWN')
    ORDER BY d.id FOR UPDATE OF d
), cancelled AS (
    UPDATE delivery d
    SET status = 'CANCELLED', error_code = 'superseded', cancel_requested_at = now(), updated_at = now()
    FROM target t
    WHERE d.id = t.id AND t.status IN ('PENDING', 'QUEUED')
    RETURNING d.id
), asked AS (
    UPDATE delivery d
    SET cancel_requested_at = now(), updated_at = now()
    FROM target t
    WHERE d.id = t.id AND t.status IN ('SENDING', 'UNKNOWN') AND d.cancel_requested_at IS NULL
    RETURNING d.id
), unread AS MATERIALIZED (
    SELECT n.id
    FROM newest w
    JOIN notification n ON n.tenant_id = %(tenant_id)s AND n.user_id = w.user_id
                       AND n.supersede_key = w.supersede_key AND n.id < w.id
    WHERE n.archived_at IS NULL AND n.read_at IS NULL
    ORDER BY n.id FOR UPDATE OF n
), archived AS (
    UPDATE notification n SET archived_at = now() FROM unread u WHERE n.id = u.id
)
SELECT k.answer, coalesce(%(scheduled_at)s::timestamptz <= now(), true),
       (SELECT count(*) FROM cancelled), (SELECT count(*) FROM asked)
FROM (SELECT) AS one
LEFT JOIN idempotency_key k ON k.tenant_id = %(tenant_id)s AND k.route = %(route)s AND k.key = %(key)s
                           AND k.notification_id = %(id)s::uuid
"""


def values_of(tenant_id: str, keys: Iterable[tuple[str, str]], since: str) -> dict[str, object]:
    """Return the values of SUPERSEDE and its turns for (user, key) pairs.

    `since` is the least id just stored. What it answers with, an idempotency key, is the caller's to add.
    """
    pairs = sorted(set(keys))
    return {
        "key_users": [user_id for user_id, _ in pairs],
        "keys": [key for _, key in pairs],
        "since": since,
        "scheduled_at": None,
        "route": None,
        "key": None,
        "id": None,
        "turns": in_order(turn("supersede", tenant_id, user_id, key) for user_id, key in pairs),
    }
