"""`arauto ledger`: proof that everything accepted is accounted for."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import WRONG, console, fail, print_json

if TYPE_CHECKING:
    from app.services.ledger import Report

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SHOWN = 50


def ledger(
    since: Annotated[
        str,
        typer.Option(metavar="WHEN", help="Only what was accepted since then: 24h, 7d, or an RFC 3339 instant."),
    ] = "",
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    *,
    lines: Annotated[bool, typer.Option("--lines", help="Show every tenant's hours, not only the sums.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Compare what was accepted with what there is, by tenant and hour; exit 1 with the ids where they differ.

    Also compared: attempts counted and recorded, and what idempotency keys answer with. Dropped days count by
    their sums. It only reads, a day at a time.

    Example: arauto ledger --since 24h
    Example: arauto ledger --tenant demo --json | jq -r '.findings[].id'
    """
    from app.cli.services import services  # noqa: PLC0415

    start = parse_since(since) if since else None
    book = services().ledger
    with _progress(hidden=as_json) as progress:
        report = book.compare(since=start, tenant_id=tenant or None, progress=progress)
    if as_json:
        print_json(
            {
                "clean": report.is_clean,
                "lines": [{**dataclasses.asdict(line), "difference": line.difference} for line in report.lines],
                "findings": [dataclasses.asdict(finding) for finding in report.findings],
            }
        )
    else:
        _show(report, with_lines=lines)
    if not report.is_clean:
        raise typer.Exit(WRONG)


def parse_since(text: str) -> datetime:
    """Read `90s`, `30m`, `24h`, `7d` (ago) or an instant with its offset; ends the command for anything else."""
    if match := re.fullmatch(r"(\d+)([smhd])", text.strip()):
        return datetime.now(UTC) - timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        fail(f"not a time: {text}", "write 30m, 24h, 7d, or an instant like 2026-11-30T08:00:00Z")
    if instant.tzinfo is None:
        fail(f"no offset in {text}", f"write it with one, for UTC {text}Z")
    return instant


@contextmanager
def _progress(*, hidden: bool) -> Iterator[Callable[[int, int], None]]:
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("Comparing by day", total=None)
        yield lambda done, days: bar.update(task, completed=done, total=days)


def _show(report: "Report", *, with_lines: bool) -> None:
    from rich.table import Table  # noqa: PLC0415

    totals: dict[str, int] = {}
    for line in report.lines:
        for state, count in line.states.items():
            totals[state] = totals.get(state, 0) + count
    accepted = sum(line.accepted for line in report.lines)
    differing = [line for line in report.lines if line.difference]
    shown = report.lines if with_lines else differing
    out = console()
    if shown:
        table = Table(title="By tenant and hour" if with_lines else "Tenants and hours that differ")
        for name in ("tenant", "hour (UTC)", "accepted", "exist", "difference"):
            table.add_column(name, justify="left" if name in {"tenant", "hour (UTC)"} else "right")
        for line in shown:
            exist = line.accepted + line.difference
            hour = f"{line.hour.astimezone(UTC):%Y-%m-%d %H:%M}"
            table.add_row(line.tenant_id, hour, f"{line.accepted:,}", f"{exist:,}", f"{line.difference:+,}")
        out.print(table)
    for finding in report.findings[:_SHOWN]:
        out.print(f"{finding.check}: {finding.id} ({finding.tenant_id}): {finding.detail}", markup=False)
    if len(report.findings) > _SHOWN:
        out.print(f"… and {len(report.findings) - _SHOWN} more: --json shows all")
    states = ", ".join(f"{state} {count:,}" for state, count in sorted(totals.items()))
    out.print(f"Accepted {accepted:,} deliveries: {states or 'none exist'}.", markup=False)
    if report.is_clean:
        out.print("Everything is accounted for.")
    else:
        out.print(f"NOT accounted for: {len(differing)} hours differ, {len(report.findings)} ids disagree.")
        out.print("  → keep the database as it is, and look at the named ids in the logs")
