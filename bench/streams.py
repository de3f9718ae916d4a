"""Live inboxes: what open streams cost the API, what each costs in memory, and how soon a client hears."""

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import orjson
import psutil
import redis.asyncio

from app.domain.inbox_channel import inbox_channel
from bench.load import body_for, paced, percentile
from bench.report import Figure, at_least, at_most
from bench.stack import Stack

STREAMS = 1000
PER_SECOND = 40.0
EVENTS_PER_SECOND = 50
_OPENING = 50
_FILES_BESIDE = 256


@dataclass
class Heard:
    """What the clients saw: how many were told to fetch their inbox, and how long events took, in seconds."""

    synced: int = 0
    seconds: list[float] = field(default_factory=list)


async def measure(stack: Stack, seconds: float) -> tuple[list[Figure], dict[str, float]]:
    """Return the latency of POSTs with STREAMS open streams and without, in turns of `seconds` each."""
    _allow_files()
    alone: list[float] = []
    beside: list[float] = []
    heard = Heard()
    await _posts(stack, 2.0)
    closed_bytes = _resident(stack)
    open_bytes = 0
    sent = 0
    for _ in range(2):
        alone += await _posts(stack, seconds)
        async with _open(stack, heard):
            open_bytes = max(open_bytes, _resident(stack))
            events = asyncio.create_task(_publish(stack, seconds))
            beside += await _posts(stack, seconds)
            sent += await events
            await asyncio.sleep(0.5)
    detail = {
        "streams_post_p50_ms_without": percentile(alone, 50) * 1e3,
        "streams_post_p50_ms_with": percentile(beside, 50) * 1e3,
        "streams_post_p99_ms_without": percentile(alone, 99) * 1e3,
        "streams_post_p99_ms_with": percentile(beside, 99) * 1e3,
        "streams_kilobytes_each": (open_bytes - closed_bytes) / STREAMS / 1024,
        "streams_event_p50_ms": percentile(heard.seconds, 50) * 1e3,
        "streams_event_p99_ms": percentile(heard.seconds, 99) * 1e3,
        "streams_events_heard": len(heard.seconds) / sent,
    }
    p50 = detail["streams_post_p50_ms_with"] / detail["streams_post_p50_ms_without"]
    p99 = detail["streams_post_p99_ms_with"] / detail["streams_post_p99_ms_without"]
    figures = [
        at_most(f"POST p50 beside {STREAMS:,} streams", p50, 1.2, "× without"),
        at_most(f"POST p99 beside {STREAMS:,} streams", p99, 1.5, "× without"),
        at_most("memory of one stream", detail["streams_kilobytes_each"], 64, "KiB"),
        at_most("publish → client p99", detail["streams_event_p99_ms"], 250, "ms"),
        at_least("events heard", detail["streams_events_heard"], 1.0, "of those published"),
    ]
    return figures, detail


async def _posts(stack: Stack, seconds: float) -> list[float]:
    body = body_for(["IN_APP"], "NORMAL")
    posted = await paced(f"{stack.api}/v1/notifications", stack.token, body, PER_SECOND, seconds)
    return posted.latencies


@contextlib.asynccontextmanager
async def _open(stack: Stack, heard: Heard) -> AsyncIterator[None]:
    """Hold STREAMS streams open, one a user; every one of them was told to fetch its inbox."""
    before = heard.synced
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    gate = asyncio.Semaphore(_OPENING)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        clients = [
            asyncio.create_task(_follow(session, stack, f"u{number}", gate, heard)) for number in range(STREAMS)
        ]
        async with asyncio.timeout(60):
            while heard.synced - before < STREAMS:
                for client in clients:
                    if client.done():
                        client.result()
                await asyncio.sleep(0.05)
        yield
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def _follow(
    session: aiohttp.ClientSession, stack: Stack, user: str, gate: asyncio.Semaphore, heard: Heard
) -> None:
    url = f"{stack.info['stream']}/v1/inbox/stream"
    headers = {"Authorization": f"Bearer {stack.token}"}
    await gate.acquire()
    is_opening = True
    try:
        async with session.get(url, params={"user_id": user}, headers=headers) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if line == b"event: sync\n" and is_opening:
                    heard.synced += 1
                    is_opening = False
                    gate.release()
                elif line.startswith(b'data: {"event"'):
                    heard.seconds.append(time.time() - float(orjson.loads(line[6:])["at"]))
    finally:
        if is_opening:
            gate.release()
    raise RuntimeError("a stream ended by itself")


async def _publish(stack: Stack, seconds: float) -> int:
    """Publish at a pace, to one user after the other; return how many events."""
    total = int(seconds * EVENTS_PER_SECOND)
    began = time.perf_counter()
    async with redis.asyncio.Redis.from_url(str(stack.info["redis_url"])) as client:
        for number in range(total):
            await asyncio.sleep(max(began + number / EVENTS_PER_SECOND - time.perf_counter(), 0))
            message = orjson.dumps({"event": "bench", "id": str(number), "at": f"{time.time():.6f}"})
            await client.publish(inbox_channel("demo", f"u{number % STREAMS}"), message)
    return total


def _resident(stack: Stack) -> int:
    pid = stack.pid("stream")
    return int(psutil.Process(pid).memory_info().rss) if pid is not None else 0


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = STREAMS + _FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
