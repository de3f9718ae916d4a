"""`make backlog`: a LOW backlog behind a provider limit, with one-time codes beside it.

Shows that the limiter never lets more through than allowed and wastes next to nothing, that HIGH is not delayed,
that no attempt is burned, and what a delivered message costs in row writes and Kafka messages.
"""

import asyncio
import time
from typing import Annotated, Any

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
        outbox.configure(stack, "limits", {"sms": LIMIT})
        before = kafka_messages(stack), fill.writes(stack, "delivery"), fill.writes(stack, "attempt")
        fill.bulk(stack, count, "SMS", "LOW")
        high = asyncio.run(_beside(stack, count))
        sent = count + len(high.started)
        rows = outbox.arrivals(stack)
        after = kafka_messages(stack), fill.writes(stack, "delivery"), fill.writes(stack, "attempt")
        with stack.database() as connection, connection.cursor() as cursor:
            cursor.execute(_GRANTS)
            started = [row[0] for row in cursor.fetchall()]
            cursor.execute(_BURNED)
            burned = (cursor.fetchone() or (0,))[0]
        stats = outbox.stats(stack)
    low = sorted(row["at"] for row in rows if row["outcome"] == "accepted")
    steady = low[int(len(low) * 0.1) : int(len(low) * 0.9)]
    rate = (len(steady) - 1) / (steady[-1] - steady[0])
    late = outbox.latencies(high.started, rows)
    figures = [
        at_most("calls in any sliding second", outbox.most_in_a_second(started), LIMIT, "/s", "by start of call"),
        at_least("calls a second while there is a backlog", rate, 475, "/s", "middle 80 % of the drain"),
        at_most("HIGH accept → provider p99", percentile(late, 99) * 1e3, 1000, "ms", f"{len(late)} codes"),
        at_most("HIGH accept → provider p50", percentile(late, 50) * 1e3, 1000, "ms"),
        at_most("deliveries with a burned attempt", burned, 0, ""),
        at_most("429 answers", stats["by_outcome"].get("throttled", 0), 0, ""),
        at_most("writes to the row, INSERT included",
                sum(after[1]) / sent - sum(before[1]) / sent, 4.0 + 1e-3, ""),
        at_most("attempt rows a delivery", (after[2][0] - before[2][0]) / sent, 1.0, ""),
        at_most("Kafka messages a delivery", (after[0] - before[0]) / sent, 1.01, "", "markers included"),
        at_most("duplicates", stats["duplicates"], 0, ""),
    ]  # fmt: skip
    met = show("backlog", figures, {"count": count, "broker": broker, "sent": sent}, as_json=as_json)
    raise typer.Exit(0 if met else 1)


async def _beside(stack: Stack, count: int) -> Any:
    """Post one-time codes at a steady pace until the backlog is gone."""
    seconds = count / LIMIT * 1.1 + 5
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"draining {count} LOW at {LIMIT}/s", total=seconds)
        began = time.monotonic()
        posted = await paced(
            f"{stack.api}/v1/notifications",
            stack.token,
            body_for(["SMS"], "HIGH"),
            HIGH_PER_SECOND,
            seconds,
            progress=lambda _n: progress.update(bar, completed=time.monotonic() - began),
        )
    expected = count + len(posted.started)
    outbox.wait_until(lambda: int(outbox.stats(stack)["unique"]) >= expected, 60.0)
    outbox.wait_until(lambda: set(fill.states(stack)) <= {"SENT"}, 15.0)
    return posted


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
