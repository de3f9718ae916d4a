"""`arauto doctor`: whether everything is there that the delivery protocol relies on."""

import dataclasses
from typing import Annotated

import typer

from app.cli.output import WRONG, console, print_json

_SIGNS = {"ok": "✓", "warn": "!", "fail": "✗"}
_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Check every dependency and setting, and say what to do about what is wrong; exit 1 on a failure.

    PostgreSQL (version, clock, migrations, partitions, old transactions), Redis (evicts nothing, no cluster),
    Kafka's topics, a worker on each queue, beat, the providers, and rows that stand still.

    Example: arauto doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    from app.cli.services import services  # noqa: PLC0415
    from app.services.doctor import Level, examine  # noqa: PLC0415

    screen = console(stderr=True)
    with screen.status("Looking") as spinner:
        findings = examine(services().probes, lambda part: spinner.update(f"Looking at {part}"))
    failed = [finding for finding in findings if finding.level is Level.FAIL]
    if as_json:
        print_json({"healthy": not failed, "findings": [dataclasses.asdict(one) for one in findings]})
    else:
        out = console()
        for finding in findings:
            line = f"{_SIGNS[finding.level]} {finding.part}: {finding.detail}"
            out.print(line, style=_STYLES[finding.level], markup=False)
            if finding.then:
                out.print(f"    → {finding.then}", markup=False)
        out.print(
            f"{len(failed)} {'failure' if len(failed) == 1 else 'failures'}."
            if failed
            else "All that the pipeline relies on is there."
        )
    if failed:
        raise typer.Exit(WRONG)
