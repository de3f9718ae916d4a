"""In-app outcomes: a delivery that is delivered lies in its user's inbox from the same transaction on."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.engine import Connection

from app.db import deliveries
from app.db.deliveries import Recordable
from app.domain.ids import day_range

# The statement of all outcomes, and the inbox. A notification is of the same day as its deliveries. They are named
# as an array, since the connections that record join without loops, which would read all of a day.
RECORD_INBOX = deliveries.RECORD.replace(
    "SELECT id::text, status FROM u",
    """, boxed AS (
    UPDATE notification n SET inbox_at = now()
    WHERE n.id = ANY(ARRAY(SELECT u.notification_id FROM u
                           WHERE u.channel = 'IN_APP' AND u.delivered_at IS NOT NULL))
      AND n.id >= %(low)s::uuid AND n.id < %(high)s::uuid AND n.inbox_at IS NULL
    RETURNING n.id
)
SELECT u.id::text, u.status, u.tenant_id, u.user_id, u.notification_id::text, b.id IS NOT NULL
FROM u LEFT JOIN boxed b ON b.id = u.notification_id""",
)


class Boxed(NamedTuple):
    """A notification that came into a user's inbox."""

    tenant_id: str
    user_id: str
    notification_id: str


def record(connection: Connection, batch: Sequence[Recordable], now: float) -> tuple[dict[str, str], list[Boxed]]:
    """As `app.db.deliveries.record`, for a batch with in-app deliveries; say too what came into whose inbox."""
    low, high = day_range([UUID(each.id) for each in batch])
    values = deliveries.outcomes(batch, now) | {"low": str(low), "high": str(high)}
    found = deliveries.fetch(connection, RECORD_INBOX, values)
    return {row[0]: row[1] for row in found}, [Boxed(*row[2:5]) for row in found if row[5]]
