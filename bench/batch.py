"""`python -m bench.batch`: a batch to a segment, accepted, expanded, expanded under kills, called off at half.

All three batches go to every user of the tenant, over the API of a stack of its own. The first is expanded in
peace, beside HIGH notifications that keep coming, and next to one `INSERT … SELECT` of as many rows. Of the second
the LOW worker, which expands, is killed repeatedly; each user must have exactly one notification. The third is
due at once and cancelled when half of it is made; then everything that was made must be told as sent or cancelled.
"""

import json
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from psycopg2.extras import execute_values

from app.sealing import context
from app.settings import Settings
from app.wiring import vault
from bench.accept import BULK_BASELINE
from bench.report import Figure, at_least, at_most, show
from bench.stack import Stack, StackError, console, running

PATH = "/v1/notifications/batch"
_INSERT = """
INSERT INTO app_user (tenant_id, id, locale, phone, phone_index, created_at)
SELECT 'demo', v.id, 'en', v.phone, '\\x00', now() - interval '1 day' FROM (VALUES %s) AS v (id, phone)
"""
_EXACTLY_ONCE = """
SELECT count(*), count(DISTINCT user_id) FROM notification WHERE batch_id = %s::uuid AND delivery_count = 1
"""
_TRAFFIC_PER_SECOND = 20.0
_WAIT_SECONDS = 1800.0


def main(
    recipients: Annotated[int, typer.Option(min=2000, help="how many users the segment has")] = 20_000,
    kills: Annotated[int, typer.Option(min=0, help="how often the LOW worker is killed")] = 3,
    broker: Annotated[str, typer.Option(help="kafka or light")] = "light",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Measure batches. Example: python -m bench.batch --recipients 1000000 --kills 5."""
    with running(broker, SMS_PROVIDER_URL="null://", SMS_RATE_PER_SECOND=100_000) as stack:
        with console.status(f"storing {recipients:,} users…"):
            _store_users(stack, recipients)
        with _traffic(stack):
            figures, raw = _in_peace(stack, recipients)
            figures += _under_kills(stack, recipients, kills)
            figures += _called_off(stack, recipients)
    if not show("Batches", figures, raw, as_json=as_json):
        raise typer.Exit(1)


def _in_peace(stack: Stack, count: int) -> tuple[list[Figure], dict[str, float]]:
    identifier, seconds = _post(stack, due=False)
    view = _until(stack, identifier, {"COMPLETED"})
    rate = float(view["progress"]["rows_per_second"])
    head = f"{time.time_ns() // 1_000_000:012x}"
    values = {
        "head": f"{head[:8]}-{head[8:]}-7000-8000-",
        "tail": f"{head[:8]}-{head[8:]}-7001-8000-",
        "count": count,
        "sealed": b"",
    }
    with stack.database() as connection, connection.cursor() as cursor:
        began = time.perf_counter()
        cursor.execute(BULK_BASELINE, values)
        limit = count / (time.perf_counter() - began)
        cursor.execute("DELETE FROM delivery WHERE tenant_id = 'bulk-base'")
        cursor.execute("DELETE FROM notification WHERE tenant_id = 'bulk-base'")
    _do(stack, identifier, "recall")
    _until(stack, identifier, {"CANCELLED"})
    note = f"{rate:,.0f}/s against {limit:,.0f}/s"
    figures = [
        at_most("accept of a segment", seconds * 1e3, 1000, "ms", f"{count:,} users"),
        at_least("expansion beside traffic", rate, 10_000, "rows/s", note),
        at_least("expansion", rate / limit, 0.25, "× INSERT … SELECT", note),
    ]
    return figures, {"rows_per_second": rate, "insert_select_per_second": limit, "accept_seconds": seconds}


def _under_kills(stack: Stack, count: int, kills: int) -> list[Figure]:
    identifier, _ = _post(stack, due=False)
    struck = 0
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        view = _view(stack, identifier)
        if view["state"] == "COMPLETED":
            break
        if struck < kills and view["progress"]["read"] >= count * (struck + 1) / (kills + 2):
            struck += stack.kill("worker-low")
        time.sleep(0.02)
    with stack.database() as connection, connection.cursor() as cursor:
        cursor.execute(_EXACTLY_ONCE, (identifier,))
        made, users = cursor.fetchone() or (0, 0)
    _do(stack, identifier, "recall")
    _until(stack, identifier, {"CANCELLED"})
    off = abs(made - count) + abs(users - count)
    return [at_most("users without exactly one", off, 0, "users", f"{struck} kills, {made:,} notifications")]


def _called_off(stack: Stack, count: int) -> list[Figure]:
    identifier, _ = _post(stack, due=True)
    deadline = time.monotonic() + _WAIT_SECONDS
    while _view(stack, identifier)["progress"]["read"] < count / 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    began = time.perf_counter()
    at_answer = _do(stack, identifier, "cancel")["progress"]["notifications"]
    seconds = time.perf_counter() - began
    after = _until(stack, identifier, {"CANCELLED"})
    whole = time.perf_counter() - began
    counts = after["deliveries"]
    told = sum(counts[name] for name in ("sent", "failed", "cancelled", "expired", "uncertain", "waiting"))
    more = after["progress"]["notifications"] - at_answer
    note = f"{at_answer:,} made, {counts['sent']:,} sent, {counts['cancelled']:,} cancelled after {whole:.1f} s"
    return [
        at_most("cancel until nothing more is made", seconds, 2, "s", note),
        at_most("notifications made after the cancel", more, 0, "rows"),
        at_most("deliveries not accounted for", abs(told - counts["total"]), 0, "rows"),
    ]


def _post(stack: Stack, *, due: bool) -> tuple[str, float]:
    body: dict[str, Any] = {
        "category": "news",
        "channels": ["SMS"],
        "content": {"title": "Sale", "body": "Everything is cheaper until Sunday."},
        "segment": {"locales": ["en"]},
    }
    if not due:
        body["scheduled_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400))
    began = time.perf_counter()
    answer = _call(stack, "POST", PATH, body)
    return str(answer["id"]), time.perf_counter() - began


def _view(stack: Stack, identifier: str) -> dict[str, Any]:
    return _call(stack, "GET", f"{PATH}/{identifier}")


def _do(stack: Stack, identifier: str, verb: str) -> dict[str, Any]:
    return _call(stack, "POST", f"{PATH}/{identifier}/{verb}")


def _until(stack: Stack, identifier: str, states: set[str]) -> dict[str, Any]:
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        view = _view(stack, identifier)
        if view["state"] in states:
            return view
        time.sleep(0.1)
    raise StackError(f"the batch did not become {states} within {_WAIT_SECONDS:.0f} s")


def _call(stack: Stack, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(
        stack.api + path,
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {stack.token}",
            "Content-Type": "application/json",
            "Idempotency-Key": str(uuid.uuid4()),
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def _store_users(stack: Stack, count: int) -> None:
    seals = vault(Settings())
    with stack.database() as connection, connection.cursor() as cursor:
        for first in range(0, count, 20_000):
            rows = [
                (name, seals.seal(context("phone", "demo", name), f"+4477009{n % 100_000:05d}".encode()))
                for n in range(first, min(first + 20_000, count))
                if (name := f"user-{n:08d}")
            ]
            execute_values(cursor, _INSERT, rows, page_size=5000)
        cursor.execute("ANALYZE app_user")


@contextmanager
def _traffic(stack: Stack) -> Iterator[None]:
    """HIGH notifications, one by one, for as long as the block lasts."""
    over = threading.Event()

    def flow() -> None:
        while not over.wait(1 / _TRAFFIC_PER_SECOND):
            _call(
                stack,
                "POST",
                "/v1/notifications",
                {
                    "user_id": "traffic",
                    "category": "security",
                    "priority": "HIGH",
                    "channels": ["SMS"],
                    "content": {"body": "Your code is 123456."},
                    "recipients": {"SMS": "+447700900000"},
                },
            )

    thread = threading.Thread(target=flow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(35)


if __name__ == "__main__":
    typer.run(main)
