"""Single accepts over HTTP beside bare Flask with the same SQL, and bulk accepts beside `INSERT … SELECT`."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench import fill
from bench.load import Posted, body_for, flat_out, percentile
from bench.report import Figure, at_least, at_most
from bench.stack import Stack, StackError

CONNECTIONS = 16
SEALED_BYTES = 110
"""As many as the content and the recipient of a bulk message take when sealed."""
BULK_BASELINE = """
WITH ids AS (
    SELECT n, (%(head)s || lpad(to_hex(n), 12, '0'))::uuid AS id, (%(tail)s || lpad(to_hex(n), 12, '0'))::uuid AS d
    FROM generate_series(1, %(count)s) AS n
), stored AS (
    INSERT INTO notification (id, tenant_id, user_id, category, priority, sealed, delivery_count)
    SELECT id, 'bulk-base', 'base', 'bench', 2, %(sealed)s, 1 FROM ids
)
INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority, next_attempt_at, relay_at)
SELECT d, id, 'bulk-base', 'base', 'SMS', 2, now() + interval '1 day', now() + interval '1 day' FROM ids
"""


async def single(stack: Stack, seconds: float) -> tuple[list[Figure], dict[str, float]]:
    """Return accepts a second at saturation, two channels each, and the ratio to the bare app."""
    body = body_for(["PUSH", "EMAIL"], "LOW")

    def later(number: int) -> dict[str, object]:
        # Due tomorrow: this measures the accept alone, without the pipeline beside it.
        return body(number) | {"scheduled_at": _tomorrow()}

    url = f"{stack.api}/v1/notifications"
    await flat_out(url, stack.token, later, 2.0, CONNECTIONS)
    ours = await flat_out(url, stack.token, later, seconds, CONNECTIONS)
    with bare_app(stack) as address:
        await flat_out(f"{address}/v1/notifications", stack.token, later, 2.0, CONNECTIONS)
        bare = await flat_out(f"{address}/v1/notifications", stack.token, later, seconds, CONNECTIONS)
    _check(ours)
    _check(bare)
    rate, limit = ours.accepted / ours.seconds, bare.accepted / bare.seconds
    note = f"{rate:,.0f}/s against {limit:,.0f}/s"
    figures = [
        at_least("single accept, 2 channels", rate / limit, 0.6, "× bare Flask", note),
        at_most("single accept p50 at saturation", percentile(ours.latencies, 50) * 1e3, 100, "ms"),
        at_most("single accept p99 at saturation", percentile(ours.latencies, 99) * 1e3, 2000, "ms"),
    ]  # fmt: skip
    return figures, {"accept_per_second": rate, "bare_per_second": limit}


def bulk(stack: Stack, count: int) -> tuple[list[Figure], dict[str, float]]:
    """Return notifications a second through the set-wise use case, and the ratio to one `INSERT … SELECT`."""
    fill.bulk(stack, fill.CHUNK, "SMS", "LOW", due_in_seconds=86_400)
    began = time.perf_counter()
    fill.bulk(stack, count, "SMS", "LOW", due_in_seconds=86_400)
    rate = count / (time.perf_counter() - began)
    milliseconds = f"{time.time_ns() // 1_000_000:012x}"
    head = f"{milliseconds[:8]}-{milliseconds[8:]}-7000-8000-"
    tail = f"{milliseconds[:8]}-{milliseconds[8:]}-7001-8000-"
    with stack.database() as connection, connection.cursor() as cursor:
        began = time.perf_counter()
        cursor.execute(BULK_BASELINE, {"head": head, "tail": tail, "count": count, "sealed": bytes(SEALED_BYTES)})
        limit = count / (time.perf_counter() - began)
        cursor.execute("DELETE FROM delivery WHERE tenant_id = 'bulk-base'")
        cursor.execute("DELETE FROM notification WHERE tenant_id = 'bulk-base'")
    figure = at_least(
        "bulk accept → PENDING rows",
        rate / limit,
        0.4,
        "× INSERT … SELECT",
        f"{rate:,.0f}/s against {limit:,.0f}/s",
    )
    return [figure], {"bulk_per_second": rate, "insert_select_per_second": limit}


class bare_app:  # noqa: N801  reads as the verb that it is
    """The bare application on a free port, for as long as the block lasts."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    def __enter__(self) -> str:
        environment = os.environ | {"DATABASE_URL": str(self._stack.info["database_url"])}
        flags = ["--interface", "wsgi", "--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        flags += ["--blocking-threads", "8", "--no-ws", "--log-level", "warning", "--factory"]
        granian = Path(sys.executable).with_name("granian")
        self._process = subprocess.Popen([str(granian), *flags, "bench.bare:create_app"], env=environment)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return f"http://127.0.0.1:{self._port}"
            time.sleep(0.05)
        raise StackError("the bare application did not come up")

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(15)


def _check(posted: Posted) -> None:
    if set(posted.statuses) != {202}:
        raise StackError(f"not every POST was accepted: {posted.statuses}")


def _tomorrow() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400))


def run_single(stack: Stack, seconds: float) -> tuple[list[Figure], dict[str, float]]:
    """`single`, from code that has no event loop."""
    return asyncio.run(single(stack, seconds))
