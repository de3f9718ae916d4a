"""The worker's statements on `delivery` and `attempt`: load, claim, record, defer, give back, reject, mark.

Invariants they hold, each by its WHERE clause:

* A claim locks its rows in id order and waits for them, so two racing claims cannot deadlock, and a message that
  overtook the relay's commit is not lost. PostgreSQL evaluates the clause again when the wait is over.
* After a claim every write carries the lease token; before it, the number of attempts that the worker has seen.
* An attempt is counted where its outcome is written, in the same statement as its `attempt` row, and never twice:
  rescue may have counted it already (the row is then UNKNOWN under the same token), and its row is overwritten.
* Each statement names its ids as a constant array, which prunes the partitions when it is planned. None says
  `status = 'SENDING'`: that would tempt the planner to the lease index instead of the primary key.

Every statement is complete in itself, so the caller may run it on an autocommit connection: one round trip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.engine import Connection

from app.domain.ids import day_range

THROTTLED_LIMIT = 1000
"""Throttled and misconfigured calls add to `attempts_allowed` up to this many: even a provider that refuses for
ever ends."""

WRITE_OPTIONS = "-c enable_nestloop=off -c enable_mergejoin=off"
"""For the connections that claim, record and defer: statistics of a young partition say that hardly any row is
QUEUED or SENDING, and a nested loop over a chunk of 200 then compares 40,000 pairs. `load` wants the loop."""

# Addresses are looked up now and not when the notification was accepted: one that changed is used as it is, and
# one that was erased is used no more. What a batch says is sealed once, on the batch; of one that is being called
# off nothing is loaded any more, and its rows stay for the statement that cancels them.
LOAD = """
SELECT d.id::text, d.attempts, d.attempts_allowed, d.priority, d.channel, d.tenant_id, d.user_id,
       extract(epoch FROM d.next_attempt_at - now())::float8, n.id::text, n.sealed,
       CASE WHEN n.metadata <> '{}' THEN n.metadata::text END, d.device_id::text,
       CASE d.channel WHEN 'EMAIL' THEN u.email WHEN 'SMS' THEN u.phone WHEN 'PUSH' THEN v.token END,
       n.batch_id::text, b.sealed, n.template, n.template_version, n.locale,
       n.category, extract(epoch FROM now())::float8, u.status, u.time_zone, v.time_zone, v.is_muted, p.choices,
       p.quiet_hours,
       CASE WHEN d.channel <> 'IN_APP' THEN
            (SELECT true FROM suppression s WHERE s.tenant_id = d.tenant_id AND s.channel = d.channel LIMIT 1) END,
       d.supersede_key, d.fallback_step IS NOT NULL, d.order_at IS NOT NULL
FROM delivery d
JOIN notification n ON n.id = d.notification_id AND n.id >= %(low)s::uuid AND n.id < %(high)s::uuid
LEFT JOIN app_user u ON u.tenant_id = d.tenant_id AND u.id = d.user_id
LEFT JOIN preference_set p ON p.tenant_id = d.tenant_id AND p.user_id = d.user_id
LEFT JOIN device v ON v.tenant_id = d.tenant_id AND v.user_id = d.user_id AND v.id = d.device_id
LEFT JOIN batch b ON b.tenant_id = n.tenant_id AND b.id = n.batch_id
WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED')
  AND (d.expires_at IS NULL OR d.expires_at > now())
  AND (b.state IS NULL OR b.state NOT IN ('CANCELLING', 'CANCELLED'))
"""

ATTEMPTS = """
SELECT d.id::text, d.attempts FROM delivery d
WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED')
"""

# `now()` is the start of the statement, so after a wait for a lock the lease is shorter, never longer, than the
# worker believes, which counts from before it issued the claim.
CLAIM = """
WITH c AS MATERIALIZED (
    SELECT d.id
    FROM delivery d
    JOIN unnest(%(ids)s::uuid[], %(attempts)s::integer[]) AS w(id, attempts) ON w.id = d.id
    WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED') AND d.attempts = w.attempts
      AND d.next_attempt_at <= now() AND (d.expires_at IS NULL OR d.expires_at > now())
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE delivery d
SET status = 'SENDING', lease_token = d.lease_token + 1, provider = %(provider)s, updated_at = now(),
    lease_until = now() + make_interval(secs => %(lease_seconds)s)
FROM c
WHERE d.id = c.id AND d.id = ANY(%(ids)s::uuid[])
RETURNING d.id::text, d.lease_token,
          extract(epoch FROM d.lease_until - clock_timestamp())::float8,
          extract(epoch FROM d.expires_at - clock_timestamp())::float8
"""

_EARLY = "d.early_receipt ->> 'kind'"

_TARGET = f"""CASE
        WHEN {_EARLY} = 'positive' THEN 'DELIVERED'
        WHEN r.outcome = 'accepted' THEN
            CASE WHEN {_EARLY} = 'negative' AND d.early_receipt ->> 'message_id' = r.message_id THEN 'FAILED'
                 WHEN r.is_final THEN 'DELIVERED' ELSE 'SENT' END
        WHEN r.outcome = 'unknown' THEN CASE WHEN {_EARLY} = 'negative' THEN 'FAILED' ELSE 'UNKNOWN' END
        WHEN r.outcome = 'rejected' THEN 'FAILED'
        WHEN d.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
        WHEN r.delay_seconds IS NULL THEN 'FAILED'
        WHEN d.expires_at <= now() THEN 'EXPIRED'
        ELSE 'PENDING' END"""

RECORD = f"""
WITH u AS (
    UPDATE delivery d
    SET status = {_TARGET},
        attempts = d.attempts + CASE WHEN d.lease_until IS NULL THEN 0 ELSE 1 END,
        attempts_allowed = LEAST(d.attempts_allowed + r.extra, GREATEST(d.attempts_allowed, {THROTTLED_LIMIT})),
        lease_until = NULL,
        early_receipt = NULL,
        uncertain = d.uncertain OR r.outcome = 'unknown',
        provider = r.provider,
        provider_message_id = COALESCE(r.message_id, d.provider_message_id),
        sent_at = CASE WHEN r.outcome = 'accepted' OR {_EARLY} = 'positive' THEN now() ELSE d.sent_at END,
        delivered_at = CASE WHEN {_TARGET} = 'DELIVERED' THEN now() ELSE d.delivered_at END,
        error_code = CASE WHEN {_TARGET} IN ('SENT', 'DELIVERED') THEN NULL
                          WHEN {_EARLY} = 'negative' AND {_TARGET} = 'FAILED' AND r.outcome <> 'rejected'
                               THEN COALESCE(d.early_receipt ->> 'code', r.code, 'undelivered')
                          ELSE COALESCE(r.code, r.outcome) END,
        last_error = CASE WHEN {_TARGET} IN ('SENT', 'DELIVERED') THEN NULL ELSE r.detail END,
        next_attempt_at = now() + make_interval(secs => COALESCE(r.delay_seconds, 0)),
        relay_at = now() + make_interval(secs => COALESCE(r.delay_seconds, 0) + r.grace_seconds),
        updated_at = now()
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(outcomes)s::text[], %(finals)s::boolean[],
                %(codes)s::text[], %(details)s::text[], %(message_ids)s::text[], %(providers)s::text[],
                %(delays)s::float8[], %(graces)s::float8[], %(extras)s::integer[], %(ages)s::float8[],
                %(durations)s::integer[])
         AS r(id, token, outcome, is_final, code, detail, message_id, provider, delay_seconds, grace_seconds,
              extra, age_seconds, duration_ms)
    WHERE d.id = r.id AND d.id = ANY(%(ids)s::uuid[]) AND d.lease_token = r.token
      AND d.status = ANY('{{SENDING,UNKNOWN}}') AND NOT (d.status = 'UNKNOWN' AND r.outcome = 'unknown')
    RETURNING d.id, d.attempts, d.tenant_id, d.user_id, d.notification_id, d.channel, d.status, d.delivered_at,
              r.provider, r.outcome, r.code, r.detail, now() - make_interval(secs => r.age_seconds) AS started_at,
              r.duration_ms
), a AS (
    INSERT INTO attempt (delivery_id, number, tenant_id, provider, outcome, code, detail, started_at, duration_ms)
    SELECT id, attempts, tenant_id, provider, outcome, code, detail, started_at, duration_ms FROM u
    ON CONFLICT (delivery_id, number) DO UPDATE
    SET outcome = EXCLUDED.outcome, provider = EXCLUDED.provider, code = EXCLUDED.code,
        detail = EXCLUDED.detail, started_at = EXCLUDED.started_at, duration_ms = EXCLUDED.duration_ms
)
SELECT id::text, status FROM u
"""  # noqa: S608  only constants of this module are put in

DEFER = """
WITH c AS MATERIALIZED (
    SELECT d.id,
           GREATEST(d.next_attempt_at,
                    now() + make_interval(secs => %(delay_seconds)s * (1 + random() * %(spread)s))) AS due_at
    FROM delivery d
    JOIN unnest(%(ids)s::uuid[], %(attempts)s::integer[]) AS w(id, attempts) ON w.id = d.id
    WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED') AND d.attempts = w.attempts
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE delivery d
SET status = 'PENDING', next_attempt_at = c.due_at, relay_at = c.due_at, updated_at = now()
FROM c
WHERE d.id = c.id AND d.id = ANY(%(ids)s::uuid[])
RETURNING d.id::text
"""

GIVE_BACK = f"""
UPDATE delivery d
SET status = CASE WHEN {_EARLY} = 'positive' THEN 'DELIVERED'
                  WHEN d.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
                  WHEN d.expires_at <= now() THEN 'EXPIRED'
                  ELSE 'PENDING' END,
    delivered_at = CASE WHEN {_EARLY} = 'positive' THEN now() ELSE d.delivered_at END,
    lease_until = NULL, early_receipt = NULL, updated_at = now(),
    next_attempt_at = GREATEST(d.next_attempt_at, now() + make_interval(secs => %(delay_seconds)s)),
    relay_at = GREATEST(d.next_attempt_at, now() + make_interval(secs => %(delay_seconds)s))
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS r(id, token)
WHERE d.id = r.id AND d.id = ANY(%(ids)s::uuid[]) AND d.lease_token = r.token
  AND d.status = ANY('{{SENDING}}')
RETURNING d.id::text, d.status
"""  # noqa: S608  only constants of this module are put in

REJECT = """
WITH c AS MATERIALIZED (
    SELECT d.id, w.code, w.detail
    FROM delivery d
    JOIN unnest(%(ids)s::uuid[], %(attempts)s::integer[], %(codes)s::text[], %(details)s::text[])
         AS w(id, attempts, code, detail) ON w.id = d.id
    WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status IN ('PENDING', 'QUEUED')
      AND (w.attempts IS NULL OR d.attempts = w.attempts)
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE delivery d
SET status = 'FAILED', error_code = c.code, last_error = c.detail, updated_at = now()
FROM c
WHERE d.id = c.id AND d.id = ANY(%(ids)s::uuid[])
RETURNING d.id::text
"""

MARK = """
INSERT INTO flow_mark (topic, partition, seq) VALUES (%(topic)s, %(partition)s, %(seq)s)
ON CONFLICT (topic, partition, seq) DO NOTHING
"""


class Loaded(NamedTuple):
    """What the worker needs to know of a delivery that may still be sent.

    `sealed` is what the notification says, None once erased, empty when its batch says all of it; `address` the
    user's own, `batch_sealed` what its batch says, sealed too.
    `due_in` is in seconds, negative once it is due; `metadata` is JSON text. `template`, its version and the
    reader's language are None where the content was given. `now` is the database's clock, in seconds since the
    epoch. `has_suppressions` says whether the tenant suppresses any address of the channel.
    """

    id: str
    attempts: int
    attempts_allowed: int
    priority: int
    channel: str
    tenant_id: str
    user_id: str
    due_in: float
    notification_id: str
    sealed: memoryview | None
    metadata: str | None
    device_id: str | None
    address: memoryview | None
    batch_id: str | None
    batch_sealed: memoryview | None
    template: str | None = None
    template_version: int | None = None
    locale: str | None = None
    category: str = ""
    now: float = 0.0
    user_status: str | None = None
    user_zone: str | None = None
    device_zone: str | None = None
    device_is_muted: bool | None = None
    choices: dict[str, dict[str, bool]] | None = None
    quiet_hours: dict[str, Any] | None = None
    has_suppressions: bool | None = None
    supersede_key: str | None = None
    has_fallback: bool = False
    is_ordered: bool = False


@dataclass(slots=True)
class Recordable:
    """One finished call, as `record` stores it. Instants travel as ages: the database's clock makes them."""

    id: str
    token: int
    outcome: str
    provider: str
    is_final: bool = False
    code: str | None = None
    detail: str | None = None
    message_id: str | None = None
    delay_seconds: float | None = None
    grace_seconds: float = 0.0
    extra: int = 0
    started: float = 0.0
    duration_ms: int = 0


def uuids(ids: Sequence[str]) -> str:
    """Return a PostgreSQL array of ids that are known to be UUIDs, cheaper than the driver's quoting."""
    return "{" + ",".join(ids) + "}"


def numbers(values: Sequence[float | None]) -> str:
    """Return a PostgreSQL array of numbers; None becomes NULL."""
    return "{" + ",".join(map(repr, values)).replace("None", "NULL") + "}"


def texts(values: Sequence[str | None]) -> str:
    """Return a PostgreSQL array of texts without NUL characters; None becomes NULL."""
    quoted = [
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    ]
    return "{" + ",".join(quoted) + "}"


def fetch(connection: Connection, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement and fetch the driver's own tuples: the hot path needs no named columns."""
    result = connection.exec_driver_sql(statement, parameters)
    assert result.cursor is not None
    rows: list[tuple[Any, ...]] = list(result.cursor.fetchall())
    result.close()
    return rows


def load(connection: Connection, ids: Sequence[str]) -> list[Loaded]:
    """Read those of `ids` that may still be sent.

    Rows that are not PENDING or QUEUED, or past their deadline, are absent.
    """
    low, high = day_range([UUID(min(ids)), UUID(max(ids))])
    found = fetch(connection, LOAD, {"ids": uuids(ids), "low": str(low), "high": str(high)})
    return [Loaded._make(row) for row in found]


def attempts_of(connection: Connection, ids: Sequence[str]) -> list[tuple[str, int]]:
    """Read the attempts of those of `ids` that are PENDING or QUEUED, for a deferral without a full load."""
    found = connection.exec_driver_sql(ATTEMPTS, {"ids": uuids(ids)})
    return [(row[0], row[1]) for row in found]


def claim(
    connection: Connection, ids: Sequence[str], attempts: Sequence[int], provider: str, lease_seconds: float
) -> list[tuple[str, int, float, float | None]]:
    """Make those of `ids` SENDING that are due, not expired and still at the attempts that we saw.

    Returns (id, lease token, seconds to the end of the lease, seconds to expiry or None), by the database's clock.
    """
    found = fetch(
        connection,
        CLAIM,
        {
            "ids": uuids(ids),
            "attempts": numbers(attempts),
            "provider": provider,
            "lease_seconds": lease_seconds,
        },
    )
    return [(row[0], row[1], row[2], row[3]) for row in found]


def record(connection: Connection, batch: Sequence[Recordable], now: float) -> dict[str, str]:
    """Write the outcomes of `batch`; return the new status of each row that was still ours.

    `now` is the same monotonic clock as `started`. The batch names each id at most once.
    """
    return {row[0]: row[1] for row in fetch(connection, RECORD, outcomes(batch, now))}


def outcomes(batch: Sequence[Recordable], now: float) -> dict[str, Any]:
    """Return the parameters of RECORD."""
    return {
        "ids": uuids([r.id for r in batch]),
        "tokens": numbers([r.token for r in batch]),
        "outcomes": texts([r.outcome for r in batch]),
        "finals": "{" + ",".join(["t" if r.is_final else "f" for r in batch]) + "}",
        "codes": texts([r.code for r in batch]),
        "details": texts([r.detail for r in batch]),
        "message_ids": texts([r.message_id for r in batch]),
        "providers": texts([r.provider for r in batch]),
        "delays": numbers([r.delay_seconds for r in batch]),
        "graces": numbers([r.grace_seconds for r in batch]),
        "extras": numbers([r.extra for r in batch]),
        "ages": numbers([max(now - r.started, 0.0) for r in batch]),
        "durations": numbers([r.duration_ms for r in batch]),
    }


def defer(
    connection: Connection,
    ids: Sequence[str],
    attempts: Sequence[int],
    delay_seconds: float,
    spread: float = 0.0,
) -> int:
    """Put unclaimed rows back to PENDING for `delay_seconds`, lengthened by up to `spread` of it; return how many.

    Costs no attempt; `next_attempt_at` only grows.
    """
    found = connection.exec_driver_sql(
        DEFER,
        {
            "ids": uuids(ids),
            "attempts": numbers(attempts),
            "delay_seconds": delay_seconds,
            "spread": spread,
        },
    )
    return len(found.fetchall())


def give_back(
    connection: Connection, ids: Sequence[str], tokens: Sequence[int], delay_seconds: float
) -> list[tuple[str, str]]:
    """Undo claims whose call has not begun; return (id, new status). Costs no attempt."""
    found = connection.exec_driver_sql(
        GIVE_BACK, {"ids": uuids(ids), "tokens": numbers(tokens), "delay_seconds": delay_seconds}
    )
    return [(row[0], row[1]) for row in found]


def reject(connection: Connection, failures: Sequence[tuple[str, int | None, str, str]]) -> int:
    """Fail rows that can never be sent, given as (id, attempts seen or None, code, detail); return how many."""
    found = connection.exec_driver_sql(
        REJECT,
        {
            "ids": uuids([failure[0] for failure in failures]),
            "attempts": numbers([failure[1] for failure in failures]),
            "codes": texts([failure[2] for failure in failures]),
            "details": texts([failure[3] for failure in failures]),
        },
    )
    return len(found.fetchall())


def mark(connection: Connection, topic: str, partition: int, seq: int) -> None:
    """Write down that the marker `seq` came through the whole pipe."""
    connection.exec_driver_sql(MARK, {"topic": topic, "partition": partition, "seq": seq})
