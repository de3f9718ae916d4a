"""What the stack consists of: each part's command, what it waits for, and how one sees that it is ready.

The commands are those of the README and of docker-compose.yml. Queue names come from `app.queues`; the slots of
the pools stand here, as they do in docker-compose.yml.
"""

import contextlib
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.domain.kinds import Priority
from app.queues import BATCH_QUEUE, LANES, RELAY_QUEUE

SLOTS = {Priority.HIGH: 12, Priority.NORMAL: 6, Priority.LOW: 2}

_NICENESS = {LANES[Priority.LOW].queue: 10}
"""All of it runs on one machine here: what a burst of LOW takes of the processors, HIGH must not miss."""

_WORKER_STOP_SECONDS = 32.0
_QUIET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """A process that is kept running."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...]
    is_ready: Callable[["Sight"], bool]
    stop_seconds: float = 10.0
    wants_kafka_address: bool = False
    death_signal: signal.Signals = signal.SIGKILL
    niceness: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A command that runs to its end whenever the part it follows has become ready, or once."""

    name: str
    command: tuple[str, ...]
    after: str
    on_every_start: bool = False


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen of a process from outside: its log since it was started, and its age in seconds."""

    log: Path
    log_start: int
    age_seconds: float

    def says(self, pattern: bytes) -> bool:
        """Return whether the log since the start matches; a process that stays silent for long counts as ready."""
        if self.age_seconds > _QUIET_SECONDS:
            return True
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(self.log_start)
            return re.search(pattern, log.read(1_000_000)) is not None
        return False


def answers_http(url: str) -> bool:
    """Return whether a GET is answered with success."""
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310  our own loopback addresses
            return True
    except (OSError, urllib.error.URLError):
        return False


def _logs(pattern: bytes) -> Callable[[Sight], bool]:
    return lambda sight: sight.says(pattern)


def _http(url: str) -> Callable[[Sight], bool]:
    return lambda _: answers_http(url)


def _python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *arguments)


def _worker(name: str, queue: str, slots: int) -> Part:
    queues = f"{queue},{BATCH_QUEUE}" if queue == LANES[Priority.LOW].queue else queue
    options = ("-Q", queues, "-c", str(slots), "-n", f"{queue}@%h", "--without-mingle", "--without-gossip")
    return Part(
        name,
        _python("celery", "-A", "tasks", "worker", *options),
        needs=("migrate", "valkey"),
        is_ready=_logs(rb"worker_ready"),
        stop_seconds=_WORKER_STOP_SECONDS,
        wants_kafka_address=queue == RELAY_QUEUE,
        niceness=_NICENESS.get(queue, 0),
    )


def parts(ports: dict[str, int], *, with_kafka: bool) -> list[Part]:
    """Return all processes of ours; `ports` has api, stream, sandbox, smtp, flower."""
    sandbox = ("--http-port", str(ports["sandbox"]), "--smtp-port", str(ports["smtp"]))
    flower = ("--address=127.0.0.1", f"--port={ports['flower']}")
    found = [
        Part(
            "sandbox",
            _python("sandbox", *sandbox),
            needs=(),
            is_ready=_http(f"http://127.0.0.1:{ports['sandbox']}/stats"),
        ),
        Part(
            "api",
            _python("app.cli", "api"),
            needs=("migrate", "valkey"),
            is_ready=_http(f"http://127.0.0.1:{ports['api']}/startup"),
            wants_kafka_address=True,
            # Its server has worker processes, which only a signal that it can heed takes along.
            death_signal=signal.SIGTERM,
        ),
        Part(
            "stream",
            _python("app.cli", "stream"),
            needs=("migrate", "valkey"),
            is_ready=_http(f"http://127.0.0.1:{ports['stream']}/ready"),
        ),
        _worker("relay", RELAY_QUEUE, 8),
        *(_worker(f"worker-{lane.queue}", lane.queue, SLOTS[lane.priority]) for lane in LANES.values()),
        Part(
            "beat",
            _python("celery", "-A", "tasks", "beat", "-l", "INFO"),
            needs=("migrate", "valkey"),
            is_ready=_logs(rb"LocalTime"),
        ),
        Part(
            "flower",
            _python("celery", "-A", "tasks", "flower", *flower),
            needs=("valkey",),
            is_ready=_http(f"http://127.0.0.1:{ports['flower']}/healthcheck"),
            niceness=10,
        ),
    ]
    if with_kafka:
        bridge = Part(
            "bridge",
            _python("app.cli", "bridge"),
            needs=("kafka", "migrate", "valkey"),
            # Ready is who has its partitions: the first message must not wait for the group to form.
            is_ready=_logs(rb"bridge_joined"),
            stop_seconds=_WORKER_STOP_SECONDS,
            wants_kafka_address=True,
        )
        found.append(bridge)
    return found


def jobs(*, with_kafka: bool) -> list[Job]:
    """Return the commands that prepare the servers. A broker that lost its data gets its topics again."""
    found = [Job("migrate", _python("app.cli", "migrate"), after="postgres")]
    if with_kafka:
        found.append(Job("topics", _python("app.cli", "topics"), after="kafka", on_every_start=True))
    return found


def token_command(seconds: int) -> tuple[str, ...]:
    """Return the command that prints a token of tenant `demo` with every scope."""
    options = ("--tenant", "demo", "--subject", "arauto-up", "--expires-in", str(seconds))
    return _python("app.cli", "token", *options)
