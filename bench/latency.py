"""HIGH from POST to the provider: on an idle stack, and beside a flood of LOW that keeps both cores busy."""

import asyncio

from bench import fill, outbox
from bench.load import body_for, paced, percentile
from bench.report import Figure, at_most
from bench.stack import Stack, console

PER_SECOND = 10.0


async def measure(stack: Stack, flood: int, seconds: float) -> tuple[list[Figure], dict[str, float]]:
    """Return p50 and p99, idle and beside `flood` LOW e-mails to a provider that takes all at once."""
    await _codes(stack, 5.0)
    idle = await _codes(stack, seconds)
    fill.bulk(stack, flood, "EMAIL", "LOW")
    busy = await _codes(stack, seconds)
    left = fill.states(stack)
    console.print(f"after the flooded run: {left}")
    detail = {
        "idle_p50_ms": percentile(idle, 50) * 1e3,
        "idle_p99_ms": percentile(idle, 99) * 1e3,
        "flood_p50_ms": percentile(busy, 50) * 1e3,
        "flood_p99_ms": percentile(busy, 99) * 1e3,
        "flood_left": float(sum(n for state, n in left.items() if state not in {"SENT", "DELIVERED"})),
    }
    figures = [
        at_most("HIGH p50, idle", detail["idle_p50_ms"], 30, "ms", "POST → provider"),
        at_most("HIGH p99, idle", detail["idle_p99_ms"], 250, "ms"),
        at_most(f"HIGH p99 beside {flood:,} LOW", detail["flood_p99_ms"], 250, "ms"),
        at_most("HIGH p50 beside the flood", detail["flood_p50_ms"] / detail["idle_p50_ms"], 2, "× idle"),
    ]
    return figures, detail


async def _codes(stack: Stack, seconds: float) -> list[float]:
    url = f"{stack.api}/v1/notifications"
    posted = await paced(url, stack.token, body_for(["SMS"], "HIGH"), PER_SECOND, seconds)
    await asyncio.sleep(1.5)
    return outbox.latencies(posted.started, outbox.arrivals(stack, channel="SMS"))
