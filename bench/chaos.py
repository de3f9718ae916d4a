"""`make chaos`: kills, flushes and restarts at random while deliveries flow, then the ledger is proved.

The lease, the marker's age and the windows are shortened so that twenty faults fit into a few minutes; `--full`
runs a hundred faults with the real times. The seed is printed: the same seed draws the same faults.
"""

import asyncio
import contextlib
import random
import time
import uuid
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any

import aiohttp
import orjson
import typer
from rich.progress import Progress, TaskID

from bench import outbox
from bench.faults import Fault, plan
from bench.fill import states
from bench.proof import FINAL, prove
from bench.report import at_most, show
from bench.stack import Stack, console, running

PER_SECOND = 40.0
SHORT_TIMES: dict[str, object] = {
    "LEASE_MINIMUM_SECONDS": 20,
    "LEASE_MARGIN_SECONDS": 10,
    "PROVIDER_TIMEOUT_SECONDS": 5,
    "RESCUE_HOLD_SECONDS": 10,
    "RATE_WAIT_SECONDS": 8,
    "MARKER_INTERVAL_SECONDS": 2,
    "UNKNOWN_WINDOW_HIGH_SECONDS": 5,
    "UNKNOWN_WINDOW_SECONDS": 15,
    "BREAKER_OPEN_SECONDS": 3,
}
CHANNELS = (["SMS"], ["EMAIL"], ["PUSH"], ["IN_APP", "PUSH"], ["SMS", "EMAIL"])


def main(
    faults: Annotated[int, typer.Option(help="how many faults strike")] = 20,
    seed: Annotated[int, typer.Option(help="0 draws one and prints it")] = 0,
    broker: Annotated[str, typer.Option(help="kafka or light")] = "kafka",
    full: Annotated[bool, typer.Option(help="100 faults, the real times")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Strike a running stack, then prove the ledger. Example: python -m bench.chaos --seed 7 --faults 5."""
    seed = seed or random.SystemRandom().randrange(1, 10**6)
    struck = plan(seed, 100 if full else faults)
    gap = 20.0 if full else 6.0
    console.print(f"seed {seed}, broker {broker}, {len(struck)} faults: {', '.join(f.name for f in struck)}")
    with running(broker, **({} if full else SHORT_TIMES), LOG_LEVEL="INFO") as stack:
        promised = asyncio.run(_flow(stack, struck, gap))
        settled = _settle(stack, 600.0 if full else 120.0)
        proof = prove(stack, promised, outbox.arrivals(stack))
        ledger = stack.arauto("ledger", "--json")
        clean = settled and proof.is_clean and ledger.returncode == 0
        figures = [
            at_most("lost", len(proof.lost), 0, ""),
            at_most("stuck", len(proof.stuck), 0, ""),
            at_most("duplicates without a lost answer", len(proof.unexplained), 0, ""),
            at_most("duplicates under hold", len(proof.doubled_under_hold), 0, ""),
            at_most("failed without cause", len(proof.failed_otherwise), 0, ""),
            at_most("duplicates under resend", len(proof.explained), _calls_at_risk(struck), "",
                    "each row shows the call whose answer was lost"),
            at_most("arauto ledger exit code", ledger.returncode, 0, ""),
        ]  # fmt: skip
        detail: dict[str, Any] = {"seed": seed, "broker": broker, "faults": [f.name for f in struck]}
        detail |= {"proof": asdict(proof), "ledger": ledger.stdout[-4000:]}
        show(f"chaos-{broker}", figures, detail, as_json=as_json)
        console.print(
            f"{proof.promised} notifications, {proof.deliveries} deliveries: {proof.states}; held as uncertain "
            f"{len(proof.held)}; {len(proof.explained)} doubled, by lost answer: {proof.reasons}"
        )
        for name in ("lost", "stuck", "unexplained", "doubled_under_hold", "failed_otherwise"):
            if ids := getattr(proof, name):
                console.print(f"[red]{name}[/red]: {' '.join(ids[:20])}")
        if not clean:
            console.print(ledger.stdout[-2000:] + ledger.stderr[-2000:])
            raise typer.Exit(1)


def _calls_at_risk(struck: list[Fault]) -> int:
    """At most (kills of workers) × (calls in flight): the window of one worker is 200 a channel, four channels."""
    return sum(200 * 4 for fault in struck if fault.kills_calls)


async def _flow(stack: Stack, struck: list[Fault], gap: float) -> list[str]:
    """Post notifications at a steady pace while the faults strike; return the ids that were promised."""
    promised: list[str] = []
    done = asyncio.Event()
    with Progress(console=console) as progress:
        bar = progress.add_task("faults", total=len(struck))
        limits = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=limits) as session, asyncio.TaskGroup() as group:
            group.create_task(_strike_all(stack, struck, gap, progress, bar, done))
            number = 0
            while not done.is_set():
                group.create_task(_post_until_answered(session, stack, number, promised))
                number += 1
                await asyncio.sleep(1 / PER_SECOND)
    return promised


async def _strike_all(
    stack: Stack, struck: list[Fault], gap: float, progress: Progress, bar: TaskID, done: asyncio.Event
) -> None:
    await asyncio.sleep(3)
    for fault in struck:
        progress.update(bar, description=f"[bold]{fault.name}")
        progress.console.print(f"{time.strftime('%H:%M:%S')} {fault.name}")
        await asyncio.to_thread(fault.strike, stack)
        progress.advance(bar)
        await asyncio.sleep(gap)
    done.set()


async def _post_until_answered(
    session: aiohttp.ClientSession, stack: Stack, number: int, promised: list[str]
) -> None:
    """Do what a careful client does: one key, and again with the same key until there is an answer."""
    channels = CHANNELS[number % len(CHANNELS)]
    addresses = {"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com", "PUSH": "sandbox:ok"}
    body = {
        "user_id": f"u{number % 100}",
        "category": "chaos",
        "priority": ("HIGH", "NORMAL", "LOW")[number % 3],
        "channels": channels,
        "content": {"title": "Chaos", "body": f"message {number}"},
        "recipients": {channel: addresses[channel] for channel in channels if channel in addresses},
    }
    headers = {
        "Authorization": f"Bearer {stack.token}",
        "Idempotency-Key": uuid.uuid4().hex,
        "Content-Type": "application/json",
    }
    url = f"{stack.api}/v1/notifications"
    for _ in range(120):
        # No answer says nothing about what was stored: the same key finds out.
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with session.post(url, data=orjson.dumps(body), headers=headers) as answer:
                raw = await answer.read()
                if answer.status == HTTPStatus.ACCEPTED:
                    promised.append(orjson.loads(raw)["id"])
                    return
                if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise RuntimeError(f"the API refused a valid body: {answer.status} {raw[:300]!r}")
        await asyncio.sleep(0.5)


def _settle(stack: Stack, seconds: float) -> bool:
    """Wait until every delivery is final; return whether that happened in time."""

    def settled() -> bool:
        return all(state in FINAL for state in states(stack))

    with console.status("settling: leases, markers and windows run out…"):
        return outbox.wait_until(settled, seconds, every=1.0)


if __name__ == "__main__":
    typer.run(main)
