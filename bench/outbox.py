"""Reading the provider simulator: what arrived, when, and how often."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import Any

from bench.stack import Stack


def _get(url: str) -> Any:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def arrivals(stack: Stack, limit: int = 1_000_000, **query: str) -> list[dict[str, Any]]:
    """Return what the simulator received, oldest first; `received_at` becomes seconds since the epoch."""
    tail = "".join(f"&{name}={urllib.parse.quote(value)}" for name, value in query.items())
    rows: list[dict[str, Any]] = _get(f"{stack.sandbox}/outbox?limit={limit}{tail}")
    for row in rows:
        row["at"] = datetime.fromisoformat(row["received_at"]).timestamp()
    return sorted(rows, key=lambda row: row["at"])


def stats(stack: Stack) -> dict[str, Any]:
    """Return the simulator's counters."""
    document: dict[str, Any] = _get(f"{stack.sandbox}/stats")
    return document


def clear(stack: Stack) -> None:
    """Empty the outbox and the counters."""
    urllib.request.urlopen(urllib.request.Request(f"{stack.sandbox}/outbox", method="DELETE"), timeout=30).close()


def configure(stack: Stack, what: str, document: dict[str, Any]) -> None:
    """PUT a run-time setting of the simulator: `limits` or `behaviour`."""
    request = urllib.request.Request(
        f"{stack.sandbox}/{what}",
        data=json.dumps(document).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=10).close()


def first_arrival(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the first accepted arrival of every reference, in seconds since the epoch."""
    first: dict[str, float] = {}
    for row in rows:
        if row["outcome"] == "accepted":
            first.setdefault(row["reference"], row["at"])
    return first


def latencies(started: dict[str, float], rows: list[dict[str, Any]]) -> list[float]:
    """Return seconds from POST to the provider's acceptance, for those that arrived."""
    first = first_arrival(rows)
    return [first[reference] - began for reference, began in started.items() if reference in first]


def most_in_a_second(instants: list[float]) -> int:
    """Return the most events in any sliding second."""
    ordered, left, most = sorted(instants), 0, 0
    for right, instant in enumerate(ordered):
        while instant - ordered[left] >= 1.0:
            left += 1
        most = max(most, right - left + 1)
    return most


def wait_until(ready: Callable[[], bool], seconds: float, every: float = 0.25) -> bool:
    """Poll `ready` until it holds or `seconds` are over; return whether it held."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(every)
    return ready()
