"""Clients of the API under test: one that posts as fast as it can, one that keeps a pace."""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson


@dataclass
class Posted:
    """What came of a run of POSTs: latencies in seconds, statuses, and delivery ids with their start times."""

    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    notifications: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def accepted(self) -> int:
        """Number of 202 answers."""
        return self.statuses.get(202, 0)


Body = Callable[[int], dict[str, Any]]


def body_for(channels: list[str], priority: str, recipient: str | None = None) -> Body:
    """Return a maker of valid bodies; the number makes every text different."""
    addresses = {
        "SMS": "+447700900000",
        "EMAIL": "ok@sandbox.example.com",
        "PUSH": "sandbox:ok",
    }
    recipients = {c: recipient or addresses[c] for c in channels if c in addresses}

    def make(number: int) -> dict[str, Any]:
        return {
            "user_id": f"u{number % 1000}",
            "category": "bench",
            "priority": priority,
            "channels": channels,
            "content": {"title": "Bench", "body": f"message {number}"},
            "recipients": recipients,
        }

    return make


async def _post(session: aiohttp.ClientSession, url: str, token: str, body: dict[str, Any], into: Posted) -> None:
    began, wall = time.perf_counter(), time.time()
    headers = {
        "Authorization": f"Bearer {token}",
        "Idempotency-Key": uuid.uuid4().hex,
        "Content-Type": "application/json",
    }
    try:
        async with session.post(url, data=orjson.dumps(body), headers=headers) as answer:
            raw, status = await answer.read(), answer.status
    except (aiohttp.ClientError, TimeoutError):
        raw, status = b"", 0
    into.latencies.append(time.perf_counter() - began)
    into.statuses[status] = into.statuses.get(status, 0) + 1
    if status == 202:
        document = orjson.loads(raw)
        into.notifications.append(document["id"])
        for delivery in document["deliveries"]:
            into.started[delivery["id"]] = wall


def _session(connections: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=30),
    )


async def flat_out(url: str, token: str, body: Body, seconds: float, connections: int) -> Posted:
    """POST from `connections` clients at once, each as fast as the answers come, for `seconds`."""
    into, number = Posted(), iter(range(10**9))
    began = time.perf_counter()
    async with _session(connections) as session:

        async def client() -> None:
            while time.perf_counter() - began < seconds:
                await _post(session, url, token, body(next(number)), into)

        await asyncio.gather(*(client() for _ in range(connections)))
    into.seconds = time.perf_counter() - began
    return into


async def paced(
    url: str,
    token: str,
    body: Body,
    per_second: float,
    seconds: float,
    connections: int = 64,
    progress: Callable[[int], None] | None = None,
) -> Posted:
    """POST at a fixed pace, whatever the answers take (an open loop): late answers do not slow the arrivals."""
    into = Posted()
    total = int(per_second * seconds)
    began = time.perf_counter()
    async with _session(connections) as session, asyncio.TaskGroup() as group:
        for number in range(total):
            wait = began + number / per_second - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(_post(session, url, token, body(number), into))
            if progress and number % 50 == 0:
                progress(number)
    into.seconds = time.perf_counter() - began
    return into


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` percent of `values` lie; NaN for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] if ordered else float("nan")
