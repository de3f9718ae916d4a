"""Due rows to SENT: the whole pipeline beside plain Celery, with a null provider and over HTTP, in one run.

The pipeline's rows all become due at one instant, so its clock starts there and ends with the last `sent_at`:
relay, Kafka, bridge, worker and record are all in it. Plain Celery gets its tasks enqueued beforehand and its
clock runs from the first to the last `sent_at`, so that neither publishing nor start-up counts against it.
"""

import os
import subprocess
import sys
import time

from bench import fill, outbox
from bench.report import Figure, at_least
from bench.stack import Stack, StackError, console, running

LEAD_SECONDS = 6.0
UNLIMITED = 1_000_000
_DUE_NOW = """
UPDATE delivery SET next_attempt_at = now() WHERE user_id = %s RETURNING id::text, notification_id::text
"""
_SPAN = """
SELECT count(*), extract(epoch FROM min(sent_at))::float8, extract(epoch FROM max(sent_at))::float8,
       extract(epoch FROM min(next_attempt_at))::float8
FROM delivery WHERE user_id = %s AND status = 'SENT'
"""


def measure(count: int, plain_count: int, broker: str) -> tuple[list[Figure], dict[str, float]]:
    """Return the ratios and the rates (deliveries a second) behind them."""
    detail: dict[str, float] = {}
    for name, provider in (("null", "null://"), ("http", "")):
        with running(
            broker,
            SMS_PROVIDER_URL=provider,
            PROVIDER_RATE_PER_SECOND=UNLIMITED,
            LOG_LEVEL="WARNING",
        ) as stack:
            pipeline(stack, 2000)
            detail[f"pipeline_{name}_per_second"] = pipeline(stack, count)
            detail[f"plain_{name}_per_second"] = plain(stack, plain_count, name == "http")
        detail[f"ratio_{name}"] = detail[f"pipeline_{name}_per_second"] / detail[f"plain_{name}_per_second"]
        console.print(f"end to end, {name}: {detail}")
    return [
        at_least("end to end, null provider", detail["ratio_null"], 15, "× plain",
                 f"{detail['pipeline_null_per_second']:,.0f}/s against {detail['plain_null_per_second']:,.0f}/s"),
        at_least("end to end, HTTP provider", detail["ratio_http"], 8, "× plain",
                 f"{detail['pipeline_http_per_second']:,.0f}/s against {detail['plain_http_per_second']:,.0f}/s"),
    ], detail  # fmt: skip


def pipeline(stack: Stack, count: int) -> float:
    """Send `count` LOW SMS that fall due at once; return deliveries a second."""
    user = f"e2e-{fill.run_id()}"
    fill.bulk(stack, count, "SMS", "LOW", due_in_seconds=LEAD_SECONDS, user_id=user)
    sent, _, last, due = _wait(stack, user, count)
    return sent / (last - due)


def plain(stack: Stack, count: int, over_http: bool) -> float:
    """Send `count` by plain Celery on the same database and broker; return deliveries a second."""
    from bench.plain_celery import app, deliver

    user = f"plain-{fill.run_id()}"
    # Far in the future for the relay, so that only plain Celery sees the rows; due for its own claim.
    fill.bulk(stack, count, "SMS", "LOW", due_in_seconds=86_400.0, user_id=user)
    with stack.database() as connection, connection.cursor() as cursor:
        cursor.execute(_DUE_NOW, (user,))
        pairs = cursor.fetchall()
    environment = os.environ | {
        "PLAIN_BROKER_URL": str(stack.info["redis_url"]),
        "PLAIN_DATABASE_URL": str(stack.info["database_url"]),
        "PLAIN_PROVIDER_URL": f"{stack.sandbox}/sms" if over_http else "",
    }
    app.conf.broker_url = environment["PLAIN_BROKER_URL"]
    with app.connection_for_write() as link, app.amqp.Producer(link) as producer:
        for pair in pairs:
            deliver.apply_async(pair, producer=producer)
    command = [sys.executable, "-m", "celery", "-A", "bench.plain_celery", "worker", "-c", "2", "-l", "WARNING"]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        sent, first, last, _ = _wait(stack, user, count)
    finally:
        worker.terminate()
        worker.wait(60)
    return (sent - 1) / (last - first)


def _wait(stack: Stack, user: str, count: int) -> tuple[int, float, float, float]:
    with stack.database() as connection, connection.cursor() as cursor:

        def sent() -> bool:
            cursor.execute("SELECT count(*) FROM delivery WHERE user_id = %s AND status = 'SENT'", (user,))
            return bool((cursor.fetchone() or (0,))[0] >= count)

        began = time.monotonic()
        if not outbox.wait_until(sent, 60.0 + count / 100, every=0.5):
            raise StackError(
                f"{count} deliveries were not sent: {fill.states(stack)} after {time.monotonic() - began}"
            )
        cursor.execute(_SPAN, (user,))
        row = cursor.fetchone()
        assert row is not None
        return int(row[0]), float(row[1]), float(row[2]), float(row[3])
