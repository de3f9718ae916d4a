"""`arauto status`: what waits, and for how long, at every hop."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from app.services.status import Snapshot


def status(
    hours: Annotated[
        int, typer.Option(min=1, help="Totals by state are of what was accepted in these hours.")
    ] = 24,
    sample: Annotated[
        float, typer.Option(min=0, help="Seconds to measure the rate of calls; 0 leaves it out.")
    ] = 2.0,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON; with --watch a line a look.")] = False,
) -> None:
    """Show lag and age per priority at every hop, totals by state, rates, breakers and the markers' watermark.

    A hop that cannot be asked is named, and the rest is shown.

    Example: arauto status --hours 1
    Example: arauto status --json | jq .priorities.HIGH.due_oldest_age_seconds
    """
    if watch:
        live(max(sample, 0.5), hours=hours, as_json=as_json)
        return
    snapshot = _look(hours, sample)
    if as_json:
        print_json(dataclasses.asdict(snapshot))
    else:
        console().print(_render(snapshot))


def live(every: float, *, hours: int = 24, as_json: bool = False) -> None:
    """Show a look every `every` seconds until interrupted; as JSON, one line each."""
    if as_json:
        while True:
            typer.echo(json.dumps(dataclasses.asdict(_look(hours, every)), default=str))
    from rich.live import Live  # noqa: PLC0415  only here

    with Live(console=console(), auto_refresh=False) as screen:
        while True:
            screen.update(_render(_look(hours, every)), refresh=True)


def _look(hours: int, sample: float) -> "Snapshot":
    from app.cli.services import services  # noqa: PLC0415

    return services().status.look(hours=hours, sample_seconds=sample)


_HOPS = (
    ("due (PENDING)", "due", "due_oldest_age_seconds"),
    ("later (PENDING)", "later", None),
    ("in the pipe (QUEUED)", "queued", "queued_oldest_age_seconds"),
    ("  Kafka lag", "kafka_lag", None),
    ("  Celery list", "celery_list", None),
    ("in a call (SENDING)", "sending", "sending_oldest_age_seconds"),
    ("  past its lease", "sending_past_lease", None),
    ("UNKNOWN", "unknown", "unknown_oldest_age_seconds"),
    ("  past its window", "unknown_past_window", None),
)


def _render(snapshot: "Snapshot") -> "Group":
    from rich.console import Group  # noqa: PLC0415

    parts: list[Any] = [_hops(snapshot)]
    if snapshot.states is not None:
        parts.append(_states(snapshot))
    rates = ", ".join(f"{value:,.0f} {name.replace('_', ' ')}" for name, value in snapshot.rates.items())
    parts.append(f"Rates: {rates}.")
    breakers = ", ".join(f"{provider} {state}" for provider, state in sorted(snapshot.breakers.items()))
    parts.append(f"Breakers: {breakers or 'none has counted a call'}.")
    marks = ", ".join(f"{topic} {seq}" for topic, seq in sorted(snapshot.watermarks.items()))
    parts.append(f"Marked through (W): {marks or 'no marker yet'}.")
    parts += [f"Cannot be asked: {hop}: {reason}" for hop, reason in snapshot.unreachable.items()]
    return Group(*parts)


def _hops(snapshot: "Snapshot") -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"Pipeline at {snapshot.at:%Y-%m-%d %H:%M:%S} UTC")
    table.add_column("hop")
    for priority in snapshot.priorities:
        table.add_column(priority, justify="right")
    for label, count, age in _HOPS:
        table.add_row(label, *(_cell(row, count, age) for row in snapshot.priorities.values()))
    return table


def _cell(row: dict[str, Any], count: str, age: str | None) -> str:
    if row[count] is None:
        return "?"
    seconds = row[age] if age else None
    return f"{row[count]:,}" + (f" ({duration(seconds)})" if seconds is not None else "")


def _states(snapshot: "Snapshot") -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"Accepted in the last {snapshot.hours} h, by state")
    table.add_column("state")
    rows = snapshot.states or {}
    for priority in rows:
        table.add_column(priority, justify="right")
    for state in sorted({state for counts in rows.values() for state in counts}):
        table.add_row(state, *(f"{counts.get(state, 0):,}" for counts in rows.values()))
    return table


def duration(seconds: float) -> str:
    """Return a span for people: 0.3 s, 12 s, 4 min, 3.5 h, 2 d."""
    for limit, unit, size in ((60.0, "s", 1.0), (3600.0, "min", 60.0), (172_800.0, "h", 3600.0)):
        if seconds < limit:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"  # noqa: PLR2004
    return f"{seconds / 86_400:.0f} d"
