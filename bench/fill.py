"""Filling the table at once: deliveries by the thousand through the set-wise use case, and how they stand."""

import contextlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from app.db.requests import DatabaseDownError
from app.domain.kinds import Channel, Priority
from app.services.accept.accept import Accept
from app.services.accept.submission import Submission
from app.settings import Settings
from app.wiring import api_services
from bench.stack import Stack

CHUNK = 1000
CALLERS = 2
LEFT_OVER_CONNECTIONS = 8

_STATES = "SELECT status, count(*) FROM delivery WHERE notification_id = ANY(%s::uuid[]) GROUP BY status"
_STATES_ALL = "SELECT status, count(*) FROM delivery GROUP BY status"
_WRITES = """
SELECT sum(n_tup_ins), sum(n_tup_upd) FROM pg_stat_user_tables WHERE relname LIKE %s
"""


def states(stack: Stack, notifications: list[str] | None = None) -> dict[str, int]:
    """Return the number of deliveries by state, of `notifications` or of all."""
    with stack.database() as connection, connection.cursor() as cursor:
        if notifications is None:
            cursor.execute(_STATES_ALL)
        else:
            cursor.execute(_STATES, (notifications,))
        return dict(cursor.fetchall())


def writes(stack: Stack, table: str) -> tuple[int, int]:
    """Return (rows inserted, rows updated) so far in all partitions of `table`."""
    with stack.database() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(_WRITES, (f"{table}\\_2%",))
        inserted, updated = cursor.fetchone() or (0, 0)
        return int(inserted or 0), int(updated or 0)


def bulk(
    stack: Stack,
    count: int,
    channel: str,
    priority: str,
    *,
    due_in_seconds: float = 0.0,
    user_id: str = "bulk",
) -> list[str]:
    """Accept `count` notifications of one delivery each, set-wise from two callers; return the notification ids.

    With `due_in_seconds` all of them fall due at one instant, counted from the end of this call's preparation.
    """
    due_at = datetime.now(UTC) + timedelta(seconds=due_in_seconds) if due_in_seconds else None
    addresses = {"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com", "PUSH": "sandbox:ok"}
    accept = api_services(settings(stack)).accept
    level, channels = Priority[priority], (Channel(channel),)

    def store(start: int) -> list[str]:
        batch = [
            Submission(
                user_id=user_id,
                category="bench",
                priority=level,
                channels=channels,
                title="Bench",
                body=f"message {number}",
                recipients={channel: addresses[channel]},
                metadata={},
                payload={},
                scheduled_at=due_at,
            )
            for number in range(start, min(start + CHUNK, count))
        ]
        return _store(accept, batch)

    with ThreadPoolExecutor(CALLERS) as pool:
        stored = list(pool.map(store, range(0, count, CHUNK)))
    return [identifier for chunk in stored for identifier in chunk]


def _store(accept: Accept, batch: list[Submission]) -> list[str]:
    """Store a batch; connections that are left of an earlier run's database are met, and forgotten, first."""
    for _ in range(LEFT_OVER_CONNECTIONS):
        with contextlib.suppress(DatabaseDownError):
            return accept.many("demo", batch)
    return accept.many("demo", batch)


def settings(stack: Stack) -> Settings:
    """Return settings of this process that point at the stack, for use cases that run in here."""
    return Settings(
        database_url=str(stack.info["database_url"]),
        redis_url=str(stack.info["redis_url"]),
        kafka_bootstrap_servers=str(stack.info["kafka_bootstrap"]),
        provider_rate_per_second=1_000_000,
    )


def run_id() -> str:
    """Return a short name that tells the rows of one run from another's."""
    return uuid.uuid4().hex[:8]
