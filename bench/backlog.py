"""`make backlog`: a LOW backlog behind a provider limit, with one-time codes beside it.

Shows that the limiter never lets more through than allowed and wastes next to nothing, that HIGH is not delayed,
that no attempt is burned, and what a delivered message costs in row writes and Kafka messages.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated

import typer
from confluent_kafka import Consumer, TopicPartition
from rich.progress import Progress

from app.queues import LANES
from bench import fill, outbox
from bench.load import body_for, paced, percentile
from bench.report import at_least, at_most, show
from bench.stack import Stack, console, running

LIMIT = 500
HIGH_PER_SECOND = 2.0
STATISTICS_SECONDS = 15.0
_GRANTS = """
SELECT extract(epoch FROM a.started_at)::float8 FROM attempt a JOIN delivery d ON d.id = a.delivery_id
WHERE d.channel = 'SMS' ORDER BY 1
"""
_BURNED = "SELECT count(*) FROM delivery WHERE channel = 'SMS' AND attempts <> 1"


def main(
    count: Annotated[int, typer.Option(help="LOW messages waiting")] = 20_000,
    full: Annotated[bool, typer.Option(help="200,000 instead")] = False,
    broker: Annotated[str, typer.Option(help="kafka, light or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Drain a LOW backlog behind 500 calls a second. Example: python -m bench.backlog --count 5000."""
    count = 200_000 if full else count
    with running(broker, SMS_RATE_PER_SECOND=LIMIT, LOG_LEVEL="WARNING") as stack:
        before = kafka_messages(stack), fill.writes(stack, "delivery")
        fill.bulk(stack, count, "SMS", "LOW")
        high = asyncio.run(_beside(stack, count))
        sent = count + len(high.started)
        rows = outbox.arrivals(stack)
        outbox.wait_until(lambda: fill.writes(stack, "delivery")[0] >= sent, STATISTICS_SECONDS)
        after = kafka_messages(stack), fill.writes(stack, "delivery")
        with stack.database() as connection, connection.cursor() as cursor:
            cursor.execute(_GRANTS)
            started = [row[0] for row in cursor.fetchall()]
            cursor.execute("SELECT count(*) FROM attempt")
            attempts = (cursor.fetchone() or (0,))[0]
            cursor.execute(_BURNED)
            burned = (cursor.fetchone() or (0,))[0]
        stats = outbox.stats(stack)
    low = sorted(row["at"] for row in rows if row["outcome"] == "accepted")
    steady = low[int(len(low) * 0.1) : int(len(low) * 0.9)]
    rate = (len(steady) - 1) / (steady[-1] - steady[0])
    late = outbox.latencies(high.started, rows)
    figures = [
        at_most("grants in any sliding second", high.most_granted, LIMIT, "/s", "sampled at the limiter"),
        at_least("calls a second while there is a backlog", rate, 475, "/s", "middle 80 % of the drain"),
        at_most("HIGH accept → provider p99", percentile(late, 99) * 1e3, 1000, "ms", f"{len(late)} codes"),
        at_most("HIGH accept → provider p50", percentile(late, 50) * 1e3, 1000, "ms"),
        at_most("deliveries with a burned attempt", burned, 0, ""),
        at_most("writes to the row, INSERT included",
                sum(after[1]) / sent - sum(before[1]) / sent, 4.0 + 1e-3, ""),
        at_most("attempt rows a delivery", attempts / sent, 1.0, ""),
        at_most("Kafka messages a delivery", (after[0] - before[0]) / sent, 1.01, "", "markers included"),
        at_most("duplicates", stats["duplicates"], 0, ""),
    ]  # fmt: skip
    met = show(
        "backlog",
        figures,
        {
            "count": count,
            "broker": broker,
            "sent": sent,
            "most_arrivals_in_a_second": stats["max_in_any_second"],
            "most_starts_in_a_second": outbox.most_in_a_second(started),
        },
        as_json=as_json,
    )
    raise typer.Exit(0 if met else 1)


@dataclass
class Beside:
    """What went on beside the drain."""

    started: dict[str, float]
    most_granted: int


async def _beside(stack: Stack, count: int) -> Beside:
    """Post one-time codes at a steady pace until the backlog is gone, and watch the limiter's window."""
    seconds = count / LIMIT * 1.1 + 5
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"draining {count} LOW at {LIMIT}/s", total=seconds)
        began = time.monotonic()
        watch = asyncio.create_task(_most_granted(stack, seconds))
        posted = await paced(
            f"{stack.api}/v1/notifications",
            stack.token,
            body_for(["SMS"], "HIGH"),
            HIGH_PER_SECOND,
            seconds,
            progress=lambda _n: progress.update(bar, completed=time.monotonic() - began),
        )
        most = await watch
    expected = count + len(posted.started)
    outbox.wait_until(lambda: int(outbox.stats(stack)["unique"]) >= expected, 60.0)
    outbox.wait_until(lambda: set(fill.states(stack)) <= {"SENT"}, 15.0)
    return Beside(posted.started, most)


async def _most_granted(stack: Stack, seconds: float) -> int:
    """Return the greatest sum of grants that the limiter held for one second, looked at 50 times a second."""
    client, most, until = stack.valkey(), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        most = max(most, int(client.hget("arauto:rate:{http-sms:SMS}", "used") or 0))
        await asyncio.sleep(0.02)
    return most


def kafka_messages(stack: Stack) -> int:
    """Return how many messages the three topics have taken so far."""
    consumer = Consumer({"bootstrap.servers": stack.info["kafka_bootstrap"], "group.id": "arauto-bench"})
    try:
        total = 0
        for lane in LANES.values():
            topic = consumer.list_topics(lane.topic, timeout=10).topics[lane.topic]
            for partition in topic.partitions:
                total += consumer.get_watermark_offsets(TopicPartition(lane.topic, partition), timeout=10)[1]
        return total
    finally:
        consumer.close()


if __name__ == "__main__":
    typer.run(main)
