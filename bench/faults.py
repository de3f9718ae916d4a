"""The faults that `make chaos` can do to a stack, each with the name that its log line carries."""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg2

from bench.stack import Stack

BROKER_DOWN_SECONDS = 30.0
KILLABLE = ("api", "beat", "relay", "bridge", "worker-high", "worker-normal", "worker-low")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong. `weight` is how often it is drawn beside the others."""

    name: str
    strike: Callable[[Stack], None]
    weight: int = 1
    kills_calls: bool = False


def _kill(name: str, sig: signal.Signals = signal.SIGKILL) -> Callable[[Stack], None]:
    def strike(stack: Stack) -> None:
        stack.kill(name, sig)

    return strike


def _flush(stack: Stack) -> None:
    stack.valkey().flushall()


def _broker_wiped_and_down(stack: Stack) -> None:
    stack.control("stop", "kafka", wipe=True)
    time.sleep(BROKER_DOWN_SECONDS)
    stack.control("start", "kafka")


def _cut_database_connections(stack: Stack) -> None:
    try:
        with stack.database() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    except psycopg2.Error:
        return  # the database is down from an earlier fault: its connections are cut already


def _freeze(name: str, seconds: float) -> Callable[[Stack], None]:
    def strike(stack: Stack) -> None:
        if stack.kill(name, signal.SIGSTOP):
            time.sleep(seconds)
            stack.kill(name, signal.SIGCONT)

    return strike


FAULTS: tuple[Fault, ...] = (
    *(Fault(f"kill -9 {name}", _kill(name), 2, name.startswith("worker")) for name in KILLABLE),
    Fault("restart worker-low", _kill("worker-low", signal.SIGTERM)),
    Fault("restart bridge", _kill("bridge", signal.SIGTERM)),
    Fault("freeze worker-normal for 3 s", _freeze("worker-normal", 3.0)),
    Fault("valkey FLUSHALL", _flush, 2),
    Fault("valkey killed", _kill("valkey")),
    Fault("valkey restarted", _kill("valkey", signal.SIGTERM)),
    Fault("kafka killed", _kill("kafka")),
    Fault("kafka wiped and down for 30 s", _broker_wiped_and_down),
    Fault("postgres restarted", _kill("postgres", signal.SIGINT)),
    Fault("postgres killed", _kill("postgres")),
    Fault("database connections cut", _cut_database_connections),
)


def plan(seed: int, count: int) -> list[Fault]:
    """Draw `count` faults: every kind at least once while there is room, the rest by weight; the seed decides."""
    draw = random.Random(seed)
    kinds = list(FAULTS)
    draw.shuffle(kinds)
    chosen = kinds[:count]
    while len(chosen) < count:
        chosen.append(draw.choices(FAULTS, [fault.weight for fault in FAULTS])[0])
    draw.shuffle(chosen)
    return chosen
