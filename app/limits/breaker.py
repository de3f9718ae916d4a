"""The circuit breaker of each provider, shared by all workers: calls to a provider that is down cost nothing.

closed → open when enough calls of the last window failed, or several connections in a row were refused;
open → half-open when its time is over; half-open → closed at the first probe that works; half-open → open, for
twice as long up to a cap, when all probes under way came back and none worked. At most a few probes are under way
at once, and they are NORMAL or LOW traffic while there is some. A killed worker's probe is lost after a time.

What counts as a failure is for the caller to say: only outcomes that concern the provider, never an answer about
one message or recipient. While closed, a batch costs no round trip: the state is remembered for 100 ms, and
successes are gathered for as long.
"""

import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from redis import Redis

from app.domain.kinds import Priority
from app.limits.script import load
from app.observability import metrics

REMEMBER_SECONDS = 0.1
MICROSECONDS = 1_000_000
_KNOWN = "arauto:{breaker}:known"


class BreakerState(StrEnum):
    """Whether calls to a provider may begin: all, none, or a few probes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


_STATES = (BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN)


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When a breaker opens and closes. Durations in seconds; `probe_seconds` outlasts any call."""

    window_seconds: float = 10.0
    minimum_calls: int = 20
    failure_ratio: float = 0.5
    refused_in_a_row: int = 5
    open_seconds: float = 30.0
    open_cap_seconds: float = 300.0
    probes: int = 5
    probe_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Permit:
    """`granted` calls may begin; probes must come back by `report` or `give_back`. Ask again in `wait_seconds`."""

    granted: int
    is_probe: bool
    wait_seconds: float


@dataclass(slots=True)
class _Memory:
    """What this process last heard of one provider, and the successes it has not told yet. Monotonic seconds."""

    state: BreakerState | None = None
    heard_at: float = 0.0
    open_until: float = 0.0
    successes: int = 0
    successes_since: float = 0.0
    told_at: float = 0.0


_METRIC = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class Breaker:
    """Permits calls to providers and learns from their outcomes. Safe for threads; raises redis.RedisError."""

    def __init__(self, client: Redis, rules: BreakerRules | None = None) -> None:
        self._client = client
        self._rules = rules or BreakerRules()
        self._script = load(client, "breaker")
        self._lock = threading.Lock()
        self._memories: dict[str, _Memory] = {}

    def permit(self, provider: str, want: int, priority: Priority) -> Permit:
        """Permit up to `want` calls now. Fewer than wanted only while the breaker is open or half-open."""
        if want <= 0:
            return Permit(0, is_probe=False, wait_seconds=0.0)
        with self._lock:
            memory = self._memories.setdefault(provider, _Memory())
            now = time.monotonic()
            if now - memory.heard_at < REMEMBER_SECONDS:
                if memory.state is BreakerState.CLOSED:
                    return Permit(want, is_probe=False, wait_seconds=0.0)
                if memory.state is BreakerState.OPEN and memory.open_until > now:
                    return Permit(0, is_probe=False, wait_seconds=memory.open_until - now)
        state, granted, wait = self._run("permit", provider, want, int(priority is Priority.HIGH))
        return Permit(granted, is_probe=granted > 0 and state is BreakerState.HALF_OPEN, wait_seconds=wait)

    def give_back(self, provider: str, probes: int) -> None:
        """Return probes that were permitted but not called, or whose outcome says nothing about the provider."""
        if probes > 0:
            self._run("give_back", provider, probes)

    def report(self, provider: str, ok: int, failed: int, refused: int, probes: int) -> None:
        """Tell the outcomes of a batch: `failed` calls that reached it, `refused` connections that did not.

        `probes` of them were probes; report those apart from calls that began before the breaker opened. Successes
        alone are gathered in the process and told at most every 100 ms.
        """
        with self._lock:
            memory = self._memories.setdefault(provider, _Memory())
            now = time.monotonic()
            if now - memory.successes_since > self._rules.window_seconds:
                memory.successes = 0
            if not memory.successes:
                memory.successes_since = now
            memory.successes += ok
            is_quiet = not (failed or refused or probes)
            if is_quiet and (not memory.successes or now - memory.told_at < REMEMBER_SECONDS):
                return
            ok, memory.successes, memory.told_at = memory.successes, 0, now
        self._run("report", provider, ok, failed, refused, probes)

    def snapshot(self) -> dict[str, str]:
        """Return the state of every provider of the last day: closed, open or half_open."""
        known = cast("list[bytes | str]", self._client.zrange(_KNOWN, 0, -1))
        names = [name.decode() if isinstance(name, bytes) else name for name in known]
        return {name: self._run("look", name)[0].value for name in names}

    def _run(self, step: str, provider: str, *arguments: int) -> tuple[BreakerState, int, float]:
        rules = self._rules
        code, granted, wait = self._script(
            keys=[f"arauto:{{breaker}}:{provider}", _KNOWN],
            args=[
                step,
                provider,
                self._clock(),
                round(rules.window_seconds * MICROSECONDS),
                rules.minimum_calls,
                rules.failure_ratio,
                rules.refused_in_a_row,
                round(rules.open_seconds * MICROSECONDS),
                round(max(rules.open_cap_seconds, rules.open_seconds) * MICROSECONDS),
                rules.probes,
                round(rules.probe_seconds * MICROSECONDS),
                *arguments,
            ],
        )
        state, wait_seconds = _STATES[int(code)], int(wait) / MICROSECONDS
        now = time.monotonic()
        with self._lock:
            memory = self._memories.setdefault(provider, _Memory())
            memory.state, memory.heard_at, memory.open_until = state, now, now + wait_seconds
        metrics.BREAKER_STATE.labels(provider).set(_METRIC[state])
        return state, int(granted), wait_seconds

    def _clock(self) -> str:
        """Return nothing, which means the server's clock; tests put a time in microseconds here."""
        return ""
