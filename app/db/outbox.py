"""The outbox: what is due, claiming it for publication, and the proof that a message was lost.

Invariants: a row is locked from its choice to the commit that makes it QUEUED, and never waited for; the relay
reads nothing but the partial index of PENDING rows, whatever else the tables hold; its fast tick names the days
of yesterday to tomorrow, so that planning stays flat with months of partitions, and a slower sweep reads all.
Rows are chosen by their state, never by a remembered position, so a late commit cannot be skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy.engine import Connection

from app.domain.ids import day_floor
from app.domain.kinds import Channel, Priority

PLANNER_OPTIONS = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off"
"""For the relay's connections: read in the order of the index even where the statistics do not know yet that a
partition is full of due rows. Sorting them would cost more with every row that waits."""

_DUE = """status = 'PENDING' AND priority = %(priority)s AND relay_at <= now()
  AND (expires_at IS NULL OR expires_at > now())"""
_RECENT = "AND id >= %(low)s::uuid AND id < %(high)s::uuid"

# One look into the partial index a channel and day, at its first entry.
_PROBE = f"""
SELECT c.channel, due.age
FROM (VALUES ('PUSH'), ('EMAIL'), ('SMS'), ('IN_APP')) AS c(channel)
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM now() - relay_at)::float8 AS age FROM delivery
    WHERE {_DUE} AND channel = c.channel {{days}}
    ORDER BY relay_at LIMIT 1
) AS due
"""  # noqa: S608  constants only
PROBE_RECENT = _PROBE.format(days=_RECENT)
PROBE_ALL = _PROBE.format(days="")

_CLAIM = f"""
SELECT id::text, notification_id::text, tenant_id, rescues, extract(epoch FROM now() - relay_at)::float8,
       CASE WHEN order_at IS NOT NULL THEN user_id END
FROM delivery
WHERE {_DUE} AND channel = %(channel)s {{days}}
ORDER BY relay_at
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""  # noqa: S608  constants only
CLAIM_RECENT = _CLAIM.format(days=_RECENT)
CLAIM_ALL = _CLAIM.format(days="")

# The number is drawn here, after the broker acknowledged: what carries a smaller one lies before the next marker.
MARK_QUEUED = """
UPDATE delivery
SET status = 'QUEUED', published_seq = (SELECT nextval('flow_seq')), updated_at = now(),
    last_error = CASE WHEN last_error LIKE 'publish: %%' THEN NULL ELSE last_error END
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'PENDING'
"""

SET_ASIDE = """
UPDATE delivery
SET relay_at = now() + make_interval(secs => %(delay_seconds)s), last_error = %(reason)s, updated_at = now()
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'PENDING'
"""

NOTE_REFUSAL = """
UPDATE delivery SET last_error = %(reason)s
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'PENDING' AND last_error IS DISTINCT FROM %(reason)s
"""

COUNT_QUEUED = """
SELECT channel, count(*) FROM delivery WHERE status = 'QUEUED' AND priority = %(priority)s GROUP BY channel
"""

HAS_QUEUED = "SELECT 1 FROM delivery WHERE status = 'QUEUED' AND priority = %(priority)s LIMIT 1"

DRAW = "SELECT nextval('flow_seq')"

PASSED = """
SELECT topic, partition, max(seq) FROM flow_mark
WHERE passed_at <= now() - make_interval(secs => %(hold_seconds)s)
GROUP BY topic, partition
"""

FIND_LOST = """
SELECT id::text FROM delivery
WHERE status = 'QUEUED' AND priority = %(priority)s AND published_seq < %(before)s
ORDER BY published_seq
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""

BRING_BACK = """
UPDATE delivery
SET status = CASE WHEN rescues >= %(most)s THEN 'FAILED' ELSE 'PENDING' END,
    error_code = CASE WHEN rescues >= %(most)s THEN 'undeliverable' ELSE error_code END,
    last_error = CASE WHEN rescues >= %(most)s THEN 'its message was lost too often' ELSE last_error END,
    rescues = rescues + 1,
    relay_at = now() + make_interval(secs => LEAST(300, 5 * (power(2, LEAST(rescues, 10)) - 1))),
    updated_at = now()
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'QUEUED' AND published_seq < %(before)s
RETURNING status
"""

PRUNE_MARKS = "DELETE FROM flow_mark WHERE passed_at < now() - make_interval(secs => %(keep_seconds)s)"


@dataclass(frozen=True, slots=True)
class Due:
    """A row locked for publication; `late_seconds` is how long ago it became due.

    `ordered_user` is the user within whose order it has to stay, or None.
    """

    id: str
    notification_id: str
    tenant_id: str
    rescues: int
    late_seconds: float
    ordered_user: str | None = None


def due_channels(connection: Connection, priority: Priority, *, is_sweep: bool = False) -> dict[Channel, float]:
    """Return the channels that have due rows, each with the age of its oldest in seconds.

    A sweep reads all days, else only rows minted from yesterday to tomorrow.
    """
    found = connection.exec_driver_sql(
        PROBE_ALL if is_sweep else PROBE_RECENT, {"priority": int(priority), **_days()}
    )
    return {Channel(row[0]): row[1] for row in found}


def claim_due(
    connection: Connection, priority: Priority, channel: Channel, limit: int, *, is_sweep: bool = False
) -> list[Due]:
    """Lock up to `limit` due rows, oldest first, passing over those that another transaction holds."""
    found = connection.exec_driver_sql(
        CLAIM_ALL if is_sweep else CLAIM_RECENT,
        {"priority": int(priority), "channel": channel.value, "limit": limit, **_days()},
    )
    return [Due(*row) for row in found.fetchall()]


def mark_queued(connection: Connection, ids: Sequence[str]) -> int:
    """Make rows QUEUED that this transaction locked and the broker acknowledged; return how many."""
    return connection.exec_driver_sql(MARK_QUEUED, {"ids": _array(ids)}).rowcount


def set_aside(connection: Connection, ids: Sequence[str], reason: str, delay_seconds: float) -> int:
    """Keep locked rows from being due for a while, so that they cannot fill every batch; costs no attempt."""
    return connection.exec_driver_sql(
        SET_ASIDE, {"ids": _array(ids), "reason": reason, "delay_seconds": delay_seconds}
    ).rowcount


def note_refusal(connection: Connection, ids: Sequence[str], reason: str) -> int:
    """Say in locked rows why they are still PENDING; written once, however often it is tried."""
    return connection.exec_driver_sql(NOTE_REFUSAL, {"ids": _array(ids), "reason": reason}).rowcount


def queued_counts(connection: Connection, priority: Priority) -> dict[Channel, int]:
    """Return how many rows are in the pipe, by channel; a channel without any is absent."""
    found = connection.exec_driver_sql(COUNT_QUEUED, {"priority": int(priority)})
    return {Channel(row[0]): row[1] for row in found}


def has_queued(connection: Connection, priority: Priority) -> bool:
    """Tell whether any row of this priority is in the pipe."""
    return connection.exec_driver_sql(HAS_QUEUED, {"priority": int(priority)}).first() is not None


def draw(connection: Connection) -> int:
    """Draw the next number of the flow sequence; the caller commits before it shows the number to anyone."""
    return int(connection.exec_driver_sql(DRAW).scalar_one())


def passed_marks(connection: Connection, hold_seconds: float) -> dict[str, dict[int, int]]:
    """Return per topic and partition the greatest marker that came through at least `hold_seconds` ago."""
    marks: dict[str, dict[int, int]] = {}
    for topic, partition, seq in connection.exec_driver_sql(PASSED, {"hold_seconds": hold_seconds}):
        marks.setdefault(topic, {})[partition] = seq
    return marks


def find_lost(connection: Connection, priority: Priority, before: int, limit: int) -> list[str]:
    """Lock up to `limit` QUEUED rows that were published before the marker `before`; return their ids."""
    found = connection.exec_driver_sql(FIND_LOST, {"priority": int(priority), "before": before, "limit": limit})
    return [row[0] for row in found]


def bring_back(connection: Connection, ids: Sequence[str], before: int, most: int) -> dict[str, int]:
    """Make lost rows PENDING again, or FAILED after `most` rescues; return how many went where, by state."""
    counts: dict[str, int] = {}
    for (status,) in connection.exec_driver_sql(
        BRING_BACK, {"ids": _array(sorted(ids)), "before": before, "most": most}
    ):
        counts[status] = counts.get(status, 0) + 1
    return counts


def prune_marks(connection: Connection, keep_seconds: float) -> int:
    """Delete markers that came through longer ago; return how many."""
    return connection.exec_driver_sql(PRUNE_MARKS, {"keep_seconds": keep_seconds}).rowcount


def _array(ids: Sequence[str]) -> str:
    return "{" + ",".join(ids) + "}"


def _days() -> dict[str, str]:
    """Return the bounds of yesterday to tomorrow by this process's clock; the sweep makes up for a wrong one."""
    today = datetime.now(UTC).date()
    return {
        "low": str(day_floor(today - timedelta(days=1))),
        "high": str(day_floor(today + timedelta(days=2))),
    }
