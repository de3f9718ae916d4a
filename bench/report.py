"""How figures are shown and kept: one table of ratios for people, one JSON file for the next run to compare."""

import json
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path("bench/results")


@dataclass(frozen=True)
class Figure:
    """One line: what was measured, the goal as `op bound`, and whether it was met."""

    what: str
    value: float
    unit: str
    goal: str
    met: bool
    note: str = ""


def at_least(what: str, value: float, bound: float, unit: str = "×", note: str = "") -> Figure:
    """A figure that should not be below `bound`."""
    return Figure(what, value, unit, f"≥ {bound:g} {unit}", value >= bound, note)


def at_most(what: str, value: float, bound: float, unit: str, note: str = "") -> Figure:
    """A figure that should not be above `bound`."""
    return Figure(what, value, unit, f"≤ {bound:g} {unit}", value <= bound, note)


def show(name: str, figures: list[Figure], detail: dict[str, Any] | None = None, *, as_json: bool = False) -> bool:
    """Print the figures, write them to bench/results/NAME.json, and tell whether every goal was met."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    document = {
        "name": name,
        "at": datetime.now(UTC).isoformat(),
        "machine": {"python": platform.python_version(), "cores": _cores()},
        "figures": [asdict(f) for f in figures],
        "detail": detail or {},
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        print(json.dumps(document))
    else:
        table = Table("what", "measured", "goal", "", "note", title=name)
        for f in figures:
            table.add_row(
                f.what, f"{f.value:,.3g} {f.unit}", f.goal, "[green]met" if f.met else "[red]short", f.note
            )
        Console(width=150).print(table)
    return all(f.met for f in figures)


def _cores() -> int:
    import os

    return os.cpu_count() or 1
