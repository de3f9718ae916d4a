"""What a request limit costs: `python -m bench.request_limits [redis://…]`, on the Redis of a running stack.

The window as it is beside two others: a counter for each of two fixed windows, weighted, and a sorted set with an
entry a request. Each is called by the same client; the last line is the share that a local allotment leaves.
"""

import sys
import time
from collections.abc import Callable

from redis import Redis

from app.domain.callers import Caller
from app.domain.request_kinds import RequestKind
from app.limits.circuit import Circuit
from app.limits.client import make_redis
from app.limits.requests import Quota, RequestWindows
from app.services.limit_requests import LimitRequests, Quotas
from app.settings import get_settings

_CALLS = 4000
_QUOTAS = Quotas(dict.fromkeys(RequestKind, 1000), service=10_000, tenants={}, sign_in_failures=100)
_TWO_BUCKETS = """
local time = redis.call('TIME')
local now, window = tonumber(time[1]) + tonumber(time[2]) / 1e6, tonumber(ARGV[2])
local begin = math.floor(now / window)
local both = redis.call('HMGET', KEYS[1], begin - 1, begin)
local before, current = tonumber(both[1]) or 0, tonumber(both[2]) or 0
if before * (1 - (now / window - begin)) + current >= tonumber(ARGV[1]) then return 0 end
redis.call('HINCRBY', KEYS[1], begin, 1)
redis.call('HDEL', KEYS[1], begin - 2)
redis.call('EXPIRE', KEYS[1], window * 2)
return 1
"""
_LOG = """
local time = redis.call('TIME')
local now, window = tonumber(time[1]) * 1e6 + tonumber(time[2]), tonumber(ARGV[2]) * 1e6
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - window))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), string.format('%.0f:%s', now, math.random()))
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 1000)
return 1
"""


def _cost(client: Redis, label: str, call: Callable[[], object]) -> None:
    """Print the µs of a call at the client, and of its script inside the server."""
    for _ in range(200):
        call()
    client.config_resetstat()
    began, used = time.perf_counter(), time.thread_time()
    for _ in range(_CALLS):
        call()
    elapsed, own = time.perf_counter() - began, time.thread_time() - used
    stats = client.info("commandstats").get("cmdstat_evalsha", {})
    inside = float(stats.get("usec_per_call", 0.0))
    print(
        f"{label:<44}{elapsed / _CALLS * 1e6:7.0f} µs a call, {own / _CALLS * 1e6:4.0f} of them busy here, "
        f"{inside:5.1f} in the server"
    )


def _paced(limits: LimitRequests) -> None:
    """Print what a request of a service costs at a pace, round trips shared."""
    caller = Caller("bench", "bench", frozenset())
    for pace in (100, 600):
        used, count = 0.0, pace * 3
        for _ in range(count):
            began, own = time.perf_counter(), time.thread_time()
            limits.request(caller, RequestKind.WRITE)
            used += time.thread_time() - own
            time.sleep(max(0.0, 1 / pace - (time.perf_counter() - began)))
        label = f"a service at {pace}/s, with its allotment"
        print(f"{label:<44}{used / count * 1e6:7.0f} µs busy here a request")


def main() -> None:
    """Measure all of them, one after the other."""
    client = make_redis(sys.argv[1] if len(sys.argv) > 1 else get_settings().redis_url)
    windows = RequestWindows(client)
    user, full = Quota(1_000_000, 60.0, 2.0), Quota(1_000_000, 6.0, 0.2)
    two, log = client.register_script(_TWO_BUCKETS), client.register_script(_LOG)
    _cost(client, "ping", client.ping)
    _cost(client, "window of a minute, a slot or two in use", lambda: windows.take("bench-user", user))
    until = time.monotonic() + 6.4
    while time.monotonic() < until:
        windows.take("bench-full", full)
        time.sleep(0.02)
    _cost(client, "window with all 30 slots in use", lambda: windows.take("bench-full", full))
    _cost(client, "two weighted counters", lambda: two(keys=["arauto:bench:two"], args=[1_000_000, 60]))
    _cost(client, "sorted set, up to 4,000 entries", lambda: log(keys=["arauto:bench:log"], args=[1_000_000, 60]))
    _paced(LimitRequests(windows, Circuit("bench", client.ping), _QUOTAS))
    client.delete("arauto:bench:two", "arauto:bench:log", *client.scan_iter("arauto:limit:*bench*"))


if __name__ == "__main__":
    main()
