"""In-app deliveries that a worker delivers: they come into the inbox, and the count and the news are right."""

import json
from collections.abc import Callable
from typing import Any

import redis
from sqlalchemy.engine import Engine

from app.cache.namespaces import UNREAD
from app.db import inbox_arrivals
from app.db.deliveries import WRITE_OPTIONS, Recordable
from app.db.session import make_engine
from app.domain.inbox_channel import inbox_channel
from app.domain.kinds import Channel
from app.wiring import cache as cache_parts
from providers.base import Message
from providers.outcome import Accepted, Outcome
from tests import delivery_rows as rows
from tests.pipeline_parts import sql
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider


async def store(message: Message) -> Outcome:
    """Deliver, as the in-app adapter does."""
    return Accepted(message.reference, is_final=True)


def test_what_a_worker_delivers_lies_in_the_inbox(
    run_worker: Callable[..., Any], engine: Engine, settings: Any, redis_client: "redis.Redis"
) -> None:
    """Counted and told, once each, in the transaction that says DELIVERED; other channels leave the inbox alone.

    Fails when the recorder leaves the cached count as it was.
    """
    cache = cache_parts(settings).cache
    assert cache.get_or_load(UNREAD, ("demo", "42"), lambda: 0) == 0
    ids = rows.add(engine, 3, channel=Channel.IN_APP)
    mailed = rows.add(engine, 1, channel=Channel.EMAIL, recipient="ana@example.com")
    with redis_client.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(inbox_channel("demo", "42"))
        with run_worker(ScriptedProvider(store)) as running:
            running.park(ids, channel=Channel.IN_APP)
            running.park(mailed, channel=Channel.EMAIL)
            eventually(lambda: rows.statuses(engine, [*ids, *mailed]) == {"DELIVERED": 4})
            heard: list[dict[str, Any]] = []

            def has_heard_all() -> bool:
                message = subscription.get_message(timeout=0.1)
                if message:
                    heard.append(json.loads(message["data"]))
                return len(heard) == 3

            eventually(has_heard_all)
    boxed = {str(row[0]) for row in sql(engine, "SELECT id FROM notification WHERE inbox_at IS NOT NULL")}
    own = sql(engine, "SELECT notification_id FROM delivery WHERE channel = 'IN_APP'")
    assert boxed == {str(row[0]) for row in own} == {each["id"] for each in heard}
    assert {each["event"] for each in heard} == {"notification.created"}
    assert cache.get_or_load(UNREAD, ("demo", "42"), lambda: 3) == 3


def test_the_inbox_is_written_by_the_primary_key(database_url: str, engine: Engine) -> None:
    """As the worker's connections plan it, a batch of in-app outcomes reads no table of notifications whole.

    Fails when the notifications are joined instead of named: those connections join by reading all of a day.
    """
    rows.add(engine, 50, channel=Channel.IN_APP)
    one = Recordable(rows.add(engine, channel=Channel.IN_APP)[0], 1, "accepted", "in-app", is_final=True)
    made = make_engine(database_url, application_name="plans", options=WRITE_OPTIONS)
    seen: list[tuple[str, dict[str, Any]]] = []

    class Looking:
        def exec_driver_sql(self, statement: str, values: dict[str, Any]) -> Any:
            seen.append((statement, values))
            return connection.exec_driver_sql(statement, values)

    try:
        with made.connect() as connection:
            inbox_arrivals.record(Looking(), [one], 0.0)  # type: ignore[arg-type]
            statement, values = seen[0]
            lines = connection.exec_driver_sql(f"EXPLAIN {statement}", values).scalars().all()
    finally:
        made.dispose()
    assert not [line for line in lines if "Seq Scan on notification_" in line], lines
