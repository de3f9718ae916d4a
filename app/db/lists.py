"""Lists of notifications, newest first, and the inbox: all that is read a page at a time.

The order is that of the id. A UUIDv7 begins with the millisecond of acceptance, which is also `created_at`, so
this is the order by (created_at, id), and one column as the cursor loses and repeats nothing where many share an
instant. It is the order of the daily partitions as well: a page is read from the newest partitions backwards and
ends when it is full.

A filter may match seldom. A page looks at no more than `scan` rows and then ends short; `scan_end` says where the
next one goes on. So every page costs the same, whatever is asked for and however much is stored.
"""

from collections.abc import Mapping
from typing import Any

from app.db.prepared import Prepared, run_prepared
from app.db.requests import Cursor
from app.domain.states import OPEN, DeliveryState
from app.domain.summary import ENDED_WELL


def _among(states: frozenset[DeliveryState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


SIBLINGS = """d.id >= (substr({id}::text, 1, 13) || '-0000-0000-000000000000')::uuid
    AND d.id <= (substr({id}::text, 1, 13) || '-ffff-ffff-ffffffffffff')::uuid"""
"""The deliveries of a notification have ids of its millisecond, hence of its day: the others are not looked at."""

STATUS = f"""CASE
    WHEN count(*) = 0 THEN 'SUPPRESSED'
    WHEN count(*) FILTER (WHERE d.status IN ({_among(OPEN)})) = count(*) THEN 'ACCEPTED'
    WHEN count(*) FILTER (WHERE d.status IN ({_among(OPEN)})) > 0 THEN 'IN_PROGRESS'
    WHEN count(*) FILTER (WHERE d.status IN ({_among(ENDED_WELL)})) = count(*) THEN 'COMPLETED'
    WHEN count(*) FILTER (WHERE d.status IN ({_among(ENDED_WELL)})) > 0 THEN 'PARTIAL'
    WHEN {{goes_on}} AND bool_or(d.status IN ('FAILED', 'CANCELLED')) THEN 'IN_PROGRESS'
    WHEN bool_or(d.status = 'FAILED') THEN 'FAILED'
    WHEN bool_or(d.status = 'CANCELLED') THEN 'CANCELLED'
    ELSE 'EXPIRED' END"""
"""`app.domain.summary.summarise` over the deliveries `d` of one notification; a test compares the two.

`goes_on` is to be filled in: a condition that a step of its fallback still waits."""

_COLUMNS = """s.id::text, s.user_id, s.category, s.priority, s.template, s.template_version, s.locale, s.sealed,
       s.metadata, s.suppressed, s.decision, s.scheduled_local,
       s.scheduled_at, s.expires_at, s.created_at, s.inbox_at, s.seen_at, s.read_at, s.archived_at,
       s.batch_id::text,
       (SELECT b.sealed FROM batch b WHERE b.tenant_id = s.tenant_id AND b.id = s.batch_id) AS batch_sealed"""

_SCANNED = """SELECT * FROM notification n
    WHERE n.tenant_id = %(tenant_id)s{of_user} AND n.deleted_at IS NULL
      AND n.id >= %(low)s AND n.id < %(before)s
    ORDER BY n.id DESC"""
_OF_USER = " AND n.user_id = %(user_id)s"
# True of every row: it is the condition of ix_notification_tenant, which no statement about one user may use.
_OF_TENANT = " AND n.delivery_count >= 0"

_LIST = f"""
SELECT {_COLUMNS}, s.supersede_key, g.steps, f.deliveries
FROM ({_SCANNED} LIMIT %(scan)s) s
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_object(
               'step', t.step, 'channel', t.channel, 'status', t.status, 'reason', t.reason,
               'after_seconds', t.after_seconds, 'check_at', t.check_at, 'decided_at', t.decided_at)
               ORDER BY t.step) AS steps,
           coalesce(bool_or(t.status = 'WAITING'), false) AS goes_on
    FROM fallback_step t WHERE t.tenant_id = s.tenant_id AND t.notification_id = s.id) g
CROSS JOIN LATERAL (
    SELECT coalesce(json_agg(json_build_object(
               'id', d.id, 'channel', d.channel, 'device_id', d.device_id, 'status', d.status,
               'attempts', d.attempts, 'next_attempt_at', d.next_attempt_at, 'provider', d.provider,
               'provider_message_id', d.provider_message_id, 'error_code', d.error_code,
               'last_error', d.last_error, 'uncertain', d.uncertain,
               'cancel_requested_at', d.cancel_requested_at, 'sent_at', d.sent_at,
               'delivered_at', d.delivered_at, 'expires_at', d.expires_at) ORDER BY d.id), '[]') AS deliveries,
           {STATUS.format(goes_on="g.goes_on")} AS status, bool_or(d.channel = %(channel)s) AS has_channel
    FROM delivery d WHERE d.notification_id = s.id AND {SIBLINGS.format(id="s.id")}) f
WHERE (%(category)s IS NULL OR s.category = %(category)s)
  AND (%(channel)s IS NULL OR f.has_channel)
  AND (%(status)s IS NULL OR f.status = %(status)s)
  AND (%(unread)s IS NULL OR %(unread)s = (s.read_at IS NULL) AND s.inbox_at IS NOT NULL)
ORDER BY s.id DESC
LIMIT %(limit)s
"""  # noqa: S608  put together of constants

_INBOX = f"""
SELECT {_COLUMNS}
FROM ({_SCANNED} LIMIT %(scan)s) s
WHERE s.inbox_at IS NOT NULL AND %(archived)s = (s.archived_at IS NOT NULL)
  AND (%(unread)s IS NULL OR %(unread)s = (s.read_at IS NULL))
  AND (%(category)s IS NULL OR s.category = %(category)s)
ORDER BY s.id DESC
LIMIT %(limit)s
"""  # noqa: S608  put together of constants

UNREAD = """n.tenant_id = %(tenant_id)s AND n.user_id = %(user_id)s AND n.inbox_at IS NOT NULL
      AND n.read_at IS NULL AND n.archived_at IS NULL AND n.deleted_at IS NULL"""
"""What an unread count counts: word for word the condition of ix_notification_unread."""

_RANGE = {"low": "uuid", "before": "uuid", "scan": "int"}
_OWNER = {"tenant_id": "text", "user_id": "text"}
_FILTERS = {"category": "text", "channel": "text", "status": "text", "unread": "boolean", "limit": "int"}
_BOXED = {"category": "text", "archived": "boolean", "unread": "boolean", "limit": "int"}
_END = "SELECT id::text FROM (" + _SCANNED + " OFFSET %(scan)s - 1 LIMIT 1) s"  # noqa: S608  of constants

LIST_OF_USER = Prepared("list_of_user", _LIST.replace("{of_user}", _OF_USER), **_OWNER, **_RANGE, **_FILTERS)
LIST_OF_TENANT = Prepared(
    "list_of_tenant", _LIST.replace("{of_user}", _OF_TENANT), tenant_id="text", **_RANGE, **_FILTERS
)
END_OF_USER = Prepared("scan_end_of_user", _END.replace("{of_user}", _OF_USER), **_OWNER, **_RANGE)
END_OF_TENANT = Prepared("scan_end_of_tenant", _END.replace("{of_user}", _OF_TENANT), tenant_id="text", **_RANGE)
INBOX = Prepared("inbox", _INBOX.replace("{of_user}", _OF_USER), **_OWNER, **_RANGE, **_BOXED)
COUNT_UNREAD = Prepared(
    "count_unread",
    f"SELECT count(*) FROM notification n WHERE {UNREAD}",  # noqa: S608  put together of constants
    **_OWNER,
)


def page(cursor: Cursor, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return up to `limit` notifications as columns by name, newest first, with `deliveries` as a list of objects.

    `values` are the parameters of LIST_OF_USER; a `user_id` of None stands for all users of the tenant.
    """
    run_prepared(cursor, LIST_OF_TENANT if values["user_id"] is None else LIST_OF_USER, values)
    return _by_name(cursor)


def inbox(cursor: Cursor, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return up to `limit` items of a user's inbox, newest first; `values` are the parameters of INBOX."""
    run_prepared(cursor, INBOX, values)
    return _by_name(cursor)


def scan_end(cursor: Cursor, values: Mapping[str, Any]) -> str | None:
    """Return the id of the last row that a page with the same `values` looked at, or None if it saw the end."""
    run_prepared(cursor, END_OF_TENANT if values["user_id"] is None else END_OF_USER, values)
    row = cursor.fetchone()
    return None if row is None else str(row[0])


def count_unread(cursor: Cursor, tenant_id: str, user_id: str) -> int:
    """Return how many items of a user's inbox are neither read nor archived nor deleted."""
    run_prepared(cursor, COUNT_UNREAD, {"tenant_id": tenant_id, "user_id": user_id})
    (row,) = cursor.fetchall()
    return int(row[0])


def _by_name(cursor: Cursor) -> list[dict[str, Any]]:
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]
