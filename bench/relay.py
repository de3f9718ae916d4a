"""The relay in this process, on the stack's database and broker, beside its own SQL without a broker."""

import time

from app.db.session import make_engine
from app.domain.kinds import Channel, Priority
from app.services.outlets import KafkaOutlet
from app.wiring_pipeline import outlet, relay_services
from bench import fill
from bench.report import Figure, at_least
from bench.stack import Stack

_CLAIM = """
UPDATE delivery SET status = 'QUEUED', published_seq = (SELECT nextval('flow_seq')), updated_at = now()
WHERE id IN (SELECT id FROM delivery WHERE status = 'PENDING' AND priority = 2 AND channel = 'SMS'
             AND relay_at <= now() AND user_id = %(user)s ORDER BY relay_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
"""
_TAKE_BACK = "UPDATE delivery SET status = 'PENDING', relay_at = now() WHERE user_id = %s AND status = 'QUEUED'"


def measure(stack: Stack, count: int) -> tuple[list[Figure], dict[str, float]]:
    """Return rows a second: claim, publish, acknowledge and stamp, against the claim and stamp alone.

    The stack's own relay, bridge and worker are stopped for it, and stay so: this one publishes instead.
    """
    for name in ("beat", "relay", "bridge", "worker-low"):
        stack.control("stop", name)
    settings = fill.settings(stack)
    services = relay_services(settings)
    way = outlet(settings)
    assert isinstance(way, KafkaOutlet)
    way.partitions(Priority.LOW)
    user = f"relay-{fill.run_id()}"
    fill.bulk(stack, count, "SMS", "LOW", user_id=user)
    began, published = time.perf_counter(), 0
    while published < count and time.perf_counter() - began < 120:
        published += services.relay.run(Priority.LOW)
    rate = published / (time.perf_counter() - began)
    engine = make_engine(settings.database_url, application_name="arauto-bench")
    with engine.begin() as connection:
        connection.exec_driver_sql(_TAKE_BACK, (user,))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM delivery")
        began, claimed = time.perf_counter(), 0
        while claimed < count:
            done = connection.exec_driver_sql(_CLAIM, {"user": user, "limit": settings.relay_batch}).rowcount
            if not done:
                break
            claimed += done
        limit = claimed / (time.perf_counter() - began)
    figures = [
        at_least("relay, PENDING → Kafka → QUEUED", rate, 20_000, "/s", f"channel {Channel.SMS}"),
        at_least("relay beside its SQL alone", rate / limit, 0.35, "×", f"SQL {limit:,.0f}/s"),
    ]
    return figures, {"relay_per_second": rate, "relay_sql_per_second": limit}
