"""Counting notifications by status, channel, category and day.

For one user the index of the lists names the rows, and each costs a look at its deliveries: exact and quick. For a
whole tenant every row of the range is read once from both tables; a statement time-out of its own bounds that, and
the caller is told to ask for less.
"""

from collections.abc import Mapping
from typing import Any

import psycopg2.errors

from app.db.lists import SIBLINGS, STATUS
from app.db.prepared import Prepared, run_prepared
from app.db.requests import Cursor
from app.db.tenancy import run_as_tenant


def _status(notification_id: str) -> str:
    return STATUS.format(goes_on=_GOES_ON.format(id=notification_id))


_GOES_ON = """EXISTS (SELECT FROM fallback_step t WHERE t.tenant_id = %(tenant_id)s
                AND t.notification_id = {id} AND t.status = 'WAITING')"""
_COUNTS = """
SELECT 'total' AS kind, '' AS key, count(*) FROM counted
UNION ALL SELECT 'status', status, count(*) FROM counted GROUP BY status
UNION ALL SELECT 'category', category, count(*) FROM counted GROUP BY category
UNION ALL SELECT 'day', day::text, count(*) FROM counted GROUP BY day
UNION ALL SELECT 'channel', channel, count(*) FROM counted, unnest(channels) AS channel GROUP BY channel
"""
_DAY = "(n.created_at AT TIME ZONE 'UTC')::date AS day"

OF_USER = Prepared(
    "stats_of_user",
    f"""
WITH counted AS MATERIALIZED (
    SELECT n.category, {_DAY}, f.*
    FROM notification n
    CROSS JOIN LATERAL (
        SELECT {_status("n.id")} AS status, array_agg(d.channel) AS channels
        FROM delivery d WHERE d.notification_id = n.id AND {SIBLINGS.format(id="n.id")}) f
    WHERE n.tenant_id = %(tenant_id)s AND n.user_id = %(user_id)s AND n.deleted_at IS NULL
      AND n.id >= %(low)s AND n.id < %(before)s
)
{_COUNTS}""",  # noqa: S608  put together of constants
    tenant_id="text",
    user_id="text",
    low="uuid",
    before="uuid",
)

OF_TENANT = f"""
SET LOCAL statement_timeout = %(timeout_ms)s;
WITH told AS (
    SELECT d.notification_id, {_status("d.notification_id")} AS status, array_agg(d.channel) AS channels
    FROM delivery d
    WHERE d.tenant_id = %(tenant_id)s AND d.id >= %(low)s::uuid AND d.id < %(before)s::uuid
    GROUP BY d.notification_id
), counted AS MATERIALIZED (
    SELECT n.category, {_DAY}, coalesce(t.status, 'SUPPRESSED') AS status, t.channels
    FROM notification n
    LEFT JOIN told t ON t.notification_id = n.id
    WHERE n.tenant_id = %(tenant_id)s AND n.deleted_at IS NULL
      AND n.id >= %(low)s::uuid AND n.id < %(before)s::uuid
)
{_COUNTS}"""  # noqa: S608  put together of constants


class TooMuchToCountError(Exception):
    """The range holds more than can be counted in the time that a request may take."""


def count(cursor: Cursor, values: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Return (kind, key, number) for each kind of sum; a `user_id` of None counts for the whole tenant.

    `values` are the parameters of both statements. Raises TooMuchToCountError.
    """
    try:
        if values["user_id"] is None:
            run_as_tenant(cursor, OF_TENANT, values)
        else:
            run_prepared(cursor, OF_USER, values)
    except psycopg2.errors.QueryCanceled as error:
        raise TooMuchToCountError from error
    return [(kind, key, number) for kind, key, number in cursor]
