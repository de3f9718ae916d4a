"""`make bulkhead`: LOW e-mail beside an SMS provider that hangs, and beside an SMS backlog behind its rate.

Neither may delay another channel of the same priority: e-mail p99, accept → provider, stays under a second.
"""

import asyncio
from typing import Annotated

import typer

from bench import fill, outbox
from bench.load import Posted, body_for, paced, percentile
from bench.report import Figure, at_least, at_most, show
from bench.stack import Stack, console, running

MAIL_PER_SECOND = 10.0
SMS_RATE = 100


def main(
    count: Annotated[int, typer.Option(help="LOW SMS waiting in the second run")] = 20_000,
    hanging: Annotated[int, typer.Option(help="LOW SMS to the hanging provider in the first run")] = 2_000,
    seconds: Annotated[float, typer.Option(help="how long e-mail flows in each run")] = 40.0,
    broker: Annotated[str, typer.Option(help="kafka, light or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Measure LOW e-mail beside SMS trouble. Example: python -m bench.bulkhead --seconds 20."""
    figures: list[Figure] = []
    with running(broker, LOG_LEVEL="WARNING") as stack:
        outbox.configure(stack, "behaviour", {"sms": {"hang": True}})
        fill.bulk(stack, hanging, "SMS", "LOW")
        figures += _figures("a hanging SMS provider", *asyncio.run(_mail(stack, seconds)))
    with running(broker, SMS_RATE_PER_SECOND=SMS_RATE, LOG_LEVEL="WARNING") as stack:
        fill.bulk(stack, count, "SMS", "LOW")
        figures += _figures(f"{count} SMS behind {SMS_RATE}/s", *asyncio.run(_mail(stack, seconds)))
    met = show("bulkhead", figures, {"broker": broker, "seconds": seconds}, as_json=as_json)
    raise typer.Exit(0 if met else 1)


async def _mail(stack: Stack, seconds: float) -> tuple[Posted, list[float]]:
    await asyncio.sleep(3)
    console.print(f"LOW e-mail at {MAIL_PER_SECOND:.0f}/s for {seconds:.0f} s; states now {fill.states(stack)}")
    url = f"{stack.api}/v1/notifications"
    posted = await paced(url, stack.token, body_for(["EMAIL"], "LOW"), MAIL_PER_SECOND, seconds)
    await asyncio.sleep(3)
    return posted, outbox.latencies(posted.started, outbox.arrivals(stack, channel="EMAIL"))


def _figures(beside: str, posted: Posted, late: list[float]) -> list[Figure]:
    return [
        at_most(f"LOW e-mail p99 beside {beside}", percentile(late, 99) * 1e3, 1000, "ms"),
        at_least(f"LOW e-mail arrived beside {beside}", len(late) / max(len(posted.started), 1), 1.0, ""),
    ]


if __name__ == "__main__":
    typer.run(main)
