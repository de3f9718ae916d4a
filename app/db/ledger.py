"""What the ledger reads: sums by tenant and hour of one day, and the ids where two tables disagree.

One day at a time, each in a short transaction of its own snapshot, so that a report over months holds back no
vacuum. A day is read through its table, or, between its detachment and its end, from where it stands alone.
Statements are made for one day, because a name of a table cannot be a parameter; nothing of a user enters them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy.engine import Connection

from app.domain.ids import day_floor, first_id_at

# A report waits for nobody and stops retention from detaching the day under it; SHARE of nothing else.
_HOLD = "LOCK TABLE ONLY notification, ONLY delivery, ONLY attempt IN ACCESS SHARE MODE"
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

_WHERE = "{alias}.id >= %(low)s::uuid AND {alias}.id < %(high)s::uuid"
_TENANT = "(%(tenant)s::text IS NULL OR {alias}.tenant_id = %(tenant)s)"
_HOUR = "date_trunc('hour', {alias}.created_at, 'UTC')"


def _sql(text: str) -> str:
    """Fill in the clauses that every statement here repeats: <n> and <d> stand for the two tables' own."""
    for alias in ("n", "d"):
        text = text.replace(f"<{alias}.range>", _WHERE.format(alias=alias))
        text = text.replace(f"<{alias}.tenant>", _TENANT.format(alias=alias))
        text = text.replace(f"<{alias}.hour>", _HOUR.format(alias=alias))
    return text


_SUMS = _sql("""
SELECT n.tenant_id, <n.hour>, 'ACCEPTED', sum(n.delivery_count)::bigint
FROM {notification} n WHERE <n.range> AND <n.tenant> GROUP BY 1, 2
UNION ALL
SELECT d.tenant_id, <d.hour>, d.status, count(*)
FROM {delivery} d WHERE <d.range> AND <d.tenant> GROUP BY 1, 2, 3
""")

_DROPPED = """
SELECT tenant_id, hour, status, count FROM ledger
WHERE (%(tenant)s::text IS NULL OR tenant_id = %(tenant)s) AND hour >= %(since)s
"""

_DELIVERIES_MISSING = _sql("""
SELECT n.id::text, n.tenant_id, <n.hour>,
       'promised ' || n.delivery_count || ' deliveries, ' || coalesce(d.found, 0) || ' exist'
FROM {notification} n
LEFT JOIN (SELECT d.notification_id, count(*) AS found FROM {delivery} d WHERE <d.range> GROUP BY 1) d
       ON d.notification_id = n.id
WHERE <n.range> AND <n.tenant> AND n.delivery_count <> coalesce(d.found, 0)
ORDER BY n.id LIMIT %(limit)s
""")

_WITHOUT_NOTIFICATION = _sql("""
SELECT d.id::text, d.tenant_id, <d.hour>, 'its notification ' || d.notification_id || ' does not exist'
FROM {delivery} d
WHERE <d.range> AND <d.tenant> AND NOT EXISTS (
    SELECT 1 FROM {notification} n WHERE <n.range> AND n.id = d.notification_id)
ORDER BY d.id LIMIT %(limit)s
""")

_OTHER_TENANT = _sql("""
SELECT d.id::text, d.tenant_id, <d.hour>, 'its notification belongs to another tenant'
FROM {delivery} d JOIN {notification} n ON n.id = d.notification_id AND n.tenant_id <> d.tenant_id
WHERE <d.range> AND <n.range> AND <d.tenant>
ORDER BY d.id LIMIT %(limit)s
""")

_ATTEMPTS_DIFFER = _sql("""
SELECT d.id::text, d.tenant_id, <d.hour>,
       'says ' || d.attempts || ' attempts, ' || coalesce(a.found, 0) || ' are recorded up to number '
       || coalesce(a.last, 0)
FROM {delivery} d
LEFT JOIN (SELECT delivery_id, count(*) AS found, max(number) AS last FROM {attempt}
           WHERE delivery_id >= %(low)s::uuid AND delivery_id < %(high)s::uuid GROUP BY 1) a
       ON a.delivery_id = d.id
WHERE <d.range> AND <d.tenant> AND (d.attempts <> coalesce(a.found, 0) OR d.attempts <> coalesce(a.last, 0))
ORDER BY d.id LIMIT %(limit)s
""")

_ATTEMPT_WITHOUT_DELIVERY = _sql("""
SELECT DISTINCT a.delivery_id::text, a.tenant_id, date_trunc('hour', a.started_at, 'UTC'),
       'an attempt is recorded, the delivery does not exist'
FROM {attempt} a
WHERE a.delivery_id >= %(low)s::uuid AND a.delivery_id < %(high)s::uuid
  AND (%(tenant)s::text IS NULL OR a.tenant_id = %(tenant)s)
  AND NOT EXISTS (SELECT 1 FROM {delivery} d WHERE <d.range> AND d.id = a.delivery_id)
ORDER BY 1 LIMIT %(limit)s
""")

_KEY_WITHOUT_NOTIFICATION = _sql("""
SELECT k.notification_id::text, k.tenant_id, date_trunc('hour', k.created_at, 'UTC'),
       'an idempotency key answers with this notification, which does not exist'
FROM idempotency_key k
WHERE k.created_at >= %(low_at)s AND k.created_at < %(high_at)s
  AND k.notification_id >= %(low)s::uuid AND k.notification_id < %(high)s::uuid
  AND (%(tenant)s::text IS NULL OR k.tenant_id = %(tenant)s)
  AND NOT EXISTS (SELECT 1 FROM {notification} n WHERE <n.range> AND n.id = k.notification_id)
ORDER BY 1 LIMIT %(limit)s
""")

CHECKS: dict[str, str] = {
    "deliveries_missing": _DELIVERIES_MISSING,
    "without_notification": _WITHOUT_NOTIFICATION,
    "other_tenant": _OTHER_TENANT,
    "attempts_differ": _ATTEMPTS_DIFFER,
    "attempt_without_delivery": _ATTEMPT_WITHOUT_DELIVERY,
    "key_without_notification": _KEY_WITHOUT_NOTIFICATION,
}
_NEEDS_ATTACHED = frozenset({"key_without_notification"})


@dataclass(frozen=True, slots=True)
class Sum:
    """`status` is a delivery's state, or ACCEPTED for what was promised; `hour` is UTC."""

    tenant_id: str
    hour: datetime
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class Finding:
    """An id on which two tables disagree, and how."""

    check: str
    id: str
    tenant_id: str
    hour: datetime
    detail: str


class DayReader:
    """Reads one day in the caller's transaction, which must not have run a statement before."""

    def __init__(
        self,
        connection: Connection,
        day: date,
        standing_tables: frozenset[str],
        *,
        since: datetime | None,
        tenant_id: str | None,
    ) -> None:
        """`standing_tables` are the tables of `day` that are detached already."""
        self._connection = connection
        low, high = day_floor(day), day_floor(day + timedelta(days=1))
        if since is not None:
            low = max(low, first_id_at(since))
        midnight = datetime.combine(day, datetime.min.time())
        self._is_standing = bool(standing_tables)
        self._names = {
            table: f"{table}_{day:%Y%m%d}" if table in standing_tables else table
            for table in ("notification", "delivery", "attempt")
        }
        self._values = {
            "low": str(low),
            "high": str(high),
            "tenant": tenant_id,
            # The API's clock mints the id, the database's dates the key: they may differ by an hour.
            "low_at": f"{midnight - timedelta(hours=1)}+00",
            "high_at": f"{midnight + timedelta(hours=25)}+00",
        }

    def sums(self) -> Iterator[Sum]:
        """Yield what was promised and what there is, by tenant, hour and state."""
        rows = self._connection.exec_driver_sql(_SUMS.format_map(self._names), self._values)
        return (Sum(*row) for row in rows)

    def findings(self, limit: int) -> Iterator[Finding]:
        """Yield up to `limit` disagreements of each kind."""
        for check, sql in CHECKS.items():
            if self._is_standing and check in _NEEDS_ATTACHED:
                continue
            rows = self._connection.exec_driver_sql(sql.format_map(self._names), {**self._values, "limit": limit})
            yield from (Finding(check, *row) for row in rows)


def begin_snapshot(connection: Connection) -> None:
    """Make the transaction read one instant, and keep the day from being detached under it."""
    connection.exec_driver_sql(_SNAPSHOT)
    connection.exec_driver_sql(_HOLD)


def dropped(connection: Connection, since: datetime | None, tenant_id: str | None) -> Iterator[Sum]:
    """Yield the sums of the days that were dropped."""
    values = {"tenant": tenant_id, "since": since or "-infinity"}
    return (Sum(*row) for row in connection.exec_driver_sql(_DROPPED, values))
