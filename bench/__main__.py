"""`make bench`: every hop of the pipeline as a ratio to a baseline or a limit, measured in one run."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import typer

from bench import accept, end_to_end, http_cost, latency, lists, relay, streams
from bench.report import Figure, show
from bench.stack import Stack, console, running

PARTS = ("accept", "bulk", "lists", "relay", "http", "latency", "streams", "end-to-end")


def main(
    only: Annotated[str, typer.Option(help=f"comma-separated parts of {', '.join(PARTS)}")] = ",".join(PARTS),
    full: Annotated[bool, typer.Option(help="ten times the rows, longer runs")] = False,
    broker: Annotated[str, typer.Option(help="kafka, light or auto")] = "auto",
    list_rows: Annotated[int, typer.Option(help="rows of the large list; 0: a million, or five when full")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Measure Arauto against its baselines. Example: python -m bench --only relay,end-to-end."""
    chosen = [part.strip() for part in only.split(",")]
    if unknown := set(chosen) - set(PARTS):
        raise typer.BadParameter(f"unknown part {', '.join(unknown)}: choose from {', '.join(PARTS)}")
    scale = 10 if full else 1
    figures: list[Figure] = []
    detail: dict[str, Any] = {}

    def add(result: tuple[list[Figure], dict[str, float]]) -> None:
        figures.extend(result[0])
        detail.update(result[1])
        for figure in result[0]:
            console.print(f"  {figure.what}: {figure.value:,.3g} {figure.unit} (goal {figure.goal}) {figure.note}")

    hops: dict[str, Callable[[Stack], tuple[list[Figure], dict[str, float]]]] = {
        "http": lambda stack: asyncio.run(http_cost.measure(stack)),
        "accept": lambda stack: accept.run_single(stack, 10.0 * min(scale, 3)),
        "bulk": lambda stack: accept.bulk(stack, 20_000 * scale),
        "lists": lambda stack: lists.measure(stack, list_rows or (5_000_000 if full else 1_000_000)),
        "relay": lambda stack: relay.measure(stack, 40_000 * scale),
    }
    if set(hops) & set(chosen):
        with running(broker, LOG_LEVEL="WARNING", PROVIDER_RATE_PER_SECOND=1_000_000) as stack:
            for part, measure in hops.items():
                if part in chosen:
                    add(measure(stack))
    if "latency" in chosen:
        with running(
            broker, LOG_LEVEL="WARNING", EMAIL_PROVIDER_URL="null://", EMAIL_RATE_PER_SECOND=1_000_000
        ) as stack:
            add(asyncio.run(latency.measure(stack, 1_000_000 if full else 150_000, 20.0)))
    if "streams" in chosen:
        with running(broker, LOG_LEVEL="WARNING") as stack:
            add(asyncio.run(streams.measure(stack, 20.0 if full else 8.0)))
    if "end-to-end" in chosen:
        add(end_to_end.measure(40_000 * scale, 3_000, broker))
    met = show("bench", figures, detail | {"broker": broker, "full": full}, as_json=as_json)
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
