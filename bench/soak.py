"""`make soak`: the highest rate of single accepts over HTTP at which everything keeps up.

One SMS each, through the real API, PostgreSQL, Kafka, Celery and HTTP to the simulator. A rate is kept when all of
it is accepted with 202 and the backlog at the end is less than two seconds of arrivals; HIGH flows beside it.
The search climbs in steps; the highest kept rate is then held for the asked time.
"""

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.progress import Progress

from bench import fill, outbox
from bench.load import body_for, paced, percentile
from bench.report import at_least, at_most, show
from bench.stack import Stack, console, running

GOAL_PER_SECOND = 600.0
DRAIN_SECONDS = 20.0
LEFT_OVER_SECONDS = 120.0
HIGH_PER_SECOND = 5.0


@dataclass
class Held:
    """What one paced run showed."""

    rate: float
    seconds: float
    accepted_share: float
    post_p50: float
    post_p99: float
    delivered_p50: float
    delivered_p99: float
    high_p99: float
    backlog: int
    duplicates: int
    kept: bool
    cpu: dict[str, float]


def main(
    seconds: Annotated[float, typer.Option(help="how long the found rate is held")] = 180.0,
    rates: Annotated[
        str, typer.Option(help="rates to try, per second, rising")
    ] = "100,150,200,250,300,400,500,600,800,1000",
    probe_seconds: Annotated[float, typer.Option(help="how long each rate is tried first")] = 15.0,
    broker: Annotated[str, typer.Option(help="kafka, light or auto")] = "auto",
    full: Annotated[bool, typer.Option(help="hold the rate for 30 minutes")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Find and hold the highest rate of single accepts. Example: python -m bench.soak --seconds 60 --rates 600."""
    seconds = 1800.0 if full else seconds
    with running(broker, PROVIDER_RATE_PER_SECOND=100_000, LOG_LEVEL="WARNING") as stack:
        asyncio.run(hold(stack, 50.0, 5.0, "warm-up"))
        best = 0.0
        tried: list[Held] = []
        for rate in (float(r) for r in rates.split(",")):
            held = asyncio.run(hold(stack, rate, probe_seconds, "probe"))
            tried.append(held)
            if not held.kept:
                break
            best = rate
        final = asyncio.run(hold(stack, best or float(rates.split(",")[0]), seconds, "hold"))
        while not final.kept and best > 50:
            best *= 0.85
            final = asyncio.run(hold(stack, best, seconds, "hold"))
        ledger = stack.arauto("ledger", "--json")
    figures = [
        at_least("single accepts kept up", final.rate if final.kept else 0.0, GOAL_PER_SECOND, "/s",
                 f"held {final.seconds:.0f} s"),
        at_most("POST p50", final.post_p50 * 1e3, 100, "ms"),
        at_most("POST p99", final.post_p99 * 1e3, 2000, "ms"),
        at_most("accept → provider p99, NORMAL", final.delivered_p99 * 1e3, 5000, "ms"),
        at_most("accept → provider p99, HIGH", final.high_p99 * 1e3, 1000, "ms"),
        at_most("duplicates", final.duplicates, 0, ""),
        at_most("ledger exit code", ledger.returncode, 0, ""),
    ]  # fmt: skip
    detail: dict[str, Any] = {"tried": [asdict(h) for h in tried], "held": asdict(final), "broker": broker}
    met = show("soak", figures, detail, as_json=as_json)
    raise typer.Exit(0 if met else 1)


async def hold(stack: Stack, rate: float, seconds: float, what: str) -> Held:
    """Keep one rate for `seconds`, with HIGH beside it, then wait for the backlog."""
    # What an overloaded run left must not arrive in this one.
    outbox.wait_until(lambda: set(fill.states(stack)) <= {"SENT"}, LEFT_OVER_SECONDS)
    outbox.clear(stack)
    before = cpu_seconds(stack)
    began = time.time()
    url = f"{stack.api}/v1/notifications"
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"{what}: {rate:.0f}/s for {seconds:.0f} s", total=rate * seconds)
        normal, high = await asyncio.gather(
            paced(url, stack.token, body_for(["SMS"], "NORMAL"), rate, seconds,
                  progress=lambda n: progress.update(bar, completed=n)),
            paced(url, stack.token, body_for(["SMS"], "HIGH"), HIGH_PER_SECOND, seconds),
        )  # fmt: skip
    spent = {name: value - before.get(name, 0.0) for name, value in cpu_seconds(stack).items()}
    ended = time.time()
    expected = len(normal.started) + len(high.started)
    arrived_at_end = int(outbox.stats(stack)["unique"])
    outbox.wait_until(lambda: int(outbox.stats(stack)["unique"]) >= expected, DRAIN_SECONDS)
    rows = outbox.arrivals(stack)
    late = outbox.latencies(normal.started, rows)
    posted = sum(normal.statuses.values())
    backlog = expected - arrived_at_end
    held = Held(
        rate=rate,
        seconds=seconds,
        accepted_share=normal.accepted / max(posted, 1),
        post_p50=percentile(normal.latencies, 50),
        post_p99=percentile(normal.latencies, 99),
        delivered_p50=percentile(late, 50),
        delivered_p99=percentile(late, 99),
        high_p99=percentile(outbox.latencies(high.started, rows), 99),
        backlog=backlog,
        duplicates=int(outbox.stats(stack)["duplicates"]),
        kept=(
            normal.accepted == posted
            and backlog <= 2 * rate
            and len(late) == len(normal.started)
            and normal.seconds < seconds * 1.05 + 2
        ),
        cpu={name: round(value / (ended - began), 3) for name, value in spent.items()},
    )
    console.print(
        f"{what} {rate:.0f}/s: {'kept' if held.kept else 'NOT kept'}; POST p50 {held.post_p50 * 1e3:.0f} ms p99 "
        f"{held.post_p99 * 1e3:.0f} ms; to provider p50 {held.delivered_p50 * 1e3:.0f} ms p99 "
        f"{held.delivered_p99 * 1e3:.0f} ms; HIGH p99 {held.high_p99 * 1e3:.0f} ms; backlog {backlog}; "
        f"states {fill.states(stack)}; cores {held.cpu}"
    )
    return held


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Return CPU seconds so far of every process of the stack with its children, and of this load generator."""
    import psutil

    stack.reread()
    spent: dict[str, float] = {}
    for entry in stack.info["processes"]:
        total = 0.0
        try:
            parent = psutil.Process(int(entry["pid"]))
            for process in [parent, *parent.children(recursive=True)]:
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue
        spent[entry["name"]] = total
    own = psutil.Process().cpu_times()
    spent["load"] = own.user + own.system
    return spent


if __name__ == "__main__":
    typer.run(main)
