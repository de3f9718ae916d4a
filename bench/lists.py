"""Lists over HTTP beside bare Flask with the same SQL, and whether a page stays flat while the table grows.

The rows lie in ninety daily partitions. Flatness compares pages of the same kinds before and after the growth: of
a user who has something every other day, of one whose notifications are all old, and of the whole tenant.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import aiohttp

from app.db import partitions
from app.db.partitions import Partition
from app.db.session import make_engine
from bench.accept import bare_app
from bench.load import percentile
from bench.report import Figure, at_least, at_most
from bench.stack import Stack, StackError, console

CONNECTIONS = 16
DAYS = 90
SMALL = 10_000
_CHUNK = 100_000
_PAGES = 200
_DAY_MS = 86_400_000

# Notifications `first` to `last`, evenly over the days from `newest` to `oldest` ago. Each has one delivery of the
# same millisecond. Nothing is sealed: an erased notification costs a list the same SQL.
_GROW = """
WITH told AS (
    SELECT n, md5(%(salt)s || n) AS tail,
           lpad(to_hex(%(from_ms)s::bigint + n * (%(to_ms)s - %(from_ms)s)::bigint / %(count)s), 12, '0') AS head
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
), ids AS (
    SELECT n, (head || '7' || substr(tail, 1, 3) || '8' || substr(tail, 4, 15))::uuid AS id,
           (head || '7' || substr(tail, 1, 3) || '9' || substr(tail, 4, 15))::uuid AS delivery_id
    FROM told
), stored AS (
    INSERT INTO notification (id, tenant_id, user_id, category, priority, delivery_count, created_at, inbox_at)
    SELECT id, 'demo', %(user)s || n %% %(users)s, 'c' || n %% 7, 2, 1, uuid_extract_timestamp(id), now()
    FROM ids
)
INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority, status, created_at, delivered_at)
SELECT delivery_id, id, 'demo', %(user)s || n %% %(users)s, 'IN_APP', 2, 'DELIVERED',
       uuid_extract_timestamp(id), now()
FROM ids
"""


def measure(stack: Stack, rows: int) -> tuple[list[Figure], dict[str, float]]:
    """Return the rate of list pages against the bare app, and how much slower a page is at `rows` rows."""
    _make_days(stack)
    _grow(stack, "busy", SMALL, users=200, oldest=DAYS, newest=0)
    _grow(stack, "old", 400, users=20, oldest=DAYS, newest=60)
    pages = {"busy user": "?user_id=busy7", "user of old ones": "?user_id=old7", "tenant": ""}
    small = {name: _page_seconds(stack, query) for name, query in pages.items()}
    _grow(stack, "more", rows - SMALL, users=max((rows - SMALL) // 50, 1), oldest=DAYS, newest=0)
    large = {name: _page_seconds(stack, query) for name, query in pages.items()}
    figures = [
        at_most(
            f"list page, {name}, {rows:,} rows against {SMALL:,}",
            large[name] / small[name],
            1.3,
            "× as long",
            f"{large[name] * 1e3:.2f} ms against {small[name] * 1e3:.2f} ms",
        )
        for name in pages
    ]
    ours, bare = asyncio.run(_rates(stack))
    limit, rate = len(bare) / 10, len(ours) / 10
    figures += [
        at_least(
            "list of a user, 20 a page", rate / limit, 0.5, "× bare Flask", f"{rate:,.0f}/s against {limit:,.0f}/s"
        ),
        at_most("list p50 at saturation", percentile(ours, 50) * 1e3, 100, "ms"),
        at_most("list p95 at saturation", percentile(ours, 95) * 1e3, 500, "ms"),
        at_most("list p99 at saturation", percentile(ours, 99) * 1e3, 2000, "ms"),
    ]
    return figures, {"list_per_second": rate, "bare_list_per_second": limit}


def _make_days(stack: Stack) -> None:
    engine = make_engine(str(stack.info["database_url"]), application_name="bench-days")
    try:
        for back in range(DAYS + 2):
            with engine.begin() as connection:
                day = (datetime.now(UTC) - timedelta(days=back)).date()
                present = partitions.attached(connection)
                for table in partitions.TABLES:
                    if Partition(table, day) not in present:
                        partitions.make(connection, Partition(table, day))
    finally:
        engine.dispose()


def _grow(stack: Stack, user: str, count: int, *, users: int, oldest: int, newest: int) -> None:
    now = time.time_ns() // 1_000_000
    values = {
        "salt": f"{user}{now}",
        "from_ms": now - oldest * _DAY_MS,
        "to_ms": now - newest * _DAY_MS,
        "count": count,
        "user": user,
        "users": users,
    }
    with stack.database() as connection, connection.cursor() as cursor:
        for first in range(0, count, _CHUNK):
            last = min(first + _CHUNK, count) - 1
            console.print(f"[dim]{user}: {last + 1:,} of {count:,} rows[/dim]")
            cursor.execute(_GROW, values | {"first": first, "last": last})
        cursor.execute("ANALYZE notification; ANALYZE delivery")


def _page_seconds(stack: Stack, query: str) -> float:
    """Return a page's time, one request after the other: that of a moment when nothing else has the cores."""
    found = asyncio.run(_read(f"{stack.api}/v1/notifications{query}", stack.token, pages=_PAGES))
    return percentile(found[_PAGES // 4 :], 20)


async def _rates(stack: Stack) -> tuple[list[float], list[float]]:
    query = f"/v1/notifications?user_id={quote('busy7')}"
    await _flat_out(stack.api + query, stack.token, 2.0)
    ours = await _flat_out(stack.api + query, stack.token, 10.0)
    with bare_app(stack) as address:
        await _flat_out(address + query, stack.token, 2.0)
        return ours, await _flat_out(address + query, stack.token, 10.0)


async def _flat_out(url: str, token: str, seconds: float) -> list[float]:
    """GET from all connections at once, each as fast as the answers come; return the latencies."""
    return [
        each
        for found in await asyncio.gather(*(_read(url, token, seconds=seconds) for _ in range(CONNECTIONS)))
        for each in found
    ]


async def _read(url: str, token: str, *, pages: int = 0, seconds: float = 0.0) -> list[float]:
    latencies: list[float] = []
    began = time.perf_counter()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        while len(latencies) < pages or time.perf_counter() - began < seconds:
            started = time.perf_counter()
            async with session.get(url) as answer:
                await answer.read()
                if answer.status != 200:
                    raise StackError(f"a list answered {answer.status}")
            latencies.append(time.perf_counter() - started)
    return latencies
