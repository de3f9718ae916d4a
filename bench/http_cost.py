"""What one provider call over HTTP costs in CPU: the adapter all in, beside bare clients in the same run."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
import orjson

from bench.report import Figure, at_most
from bench.stack import Stack
from providers.base import Message
from providers.registry import build

CALLS = 3000
CONCURRENT = 50

Call = Callable[[int], Awaitable[None]]


async def measure(stack: Stack) -> tuple[list[Figure], dict[str, float]]:
    """Return CPU microseconds a call of this process: our SMS adapter, and aiohttp alone with the same body."""
    url = f"{stack.sandbox}/sms"
    ours = await _adapter(url)
    bare = await _bare(url)
    figures = [
        at_most("HTTP provider call, CPU all in", ours, 250, "µs", f"bare aiohttp {bare:.0f} µs in the same run")
    ]
    return figures, {"adapter_us": ours, "bare_aiohttp_us": bare}


async def _adapter(url: str) -> float:
    provider = build("SMS", url)
    await provider.start()

    async def call(number: int) -> None:
        await provider.send(Message(f"bench-{number}", "+447700900000", "Bench", f"message {number}"))

    try:
        return await _cpu_of(call)
    finally:
        await provider.close()


async def _bare(url: str) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENT)) as session:

        async def call(number: int) -> None:
            body = orjson.dumps({"reference": f"bare-{number}", "to": "+447700900000", "title": "", "body": "x"})
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                await answer.read()

        return await _cpu_of(call)


async def _cpu_of(call: Call) -> float:
    for number in range(CONCURRENT):
        await call(-number - 1)
    numbers = iter(range(CALLS))
    began = time.process_time()

    async def client() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(client() for _ in range(CONCURRENT)))
    return (time.process_time() - began) / CALLS * 1e6
