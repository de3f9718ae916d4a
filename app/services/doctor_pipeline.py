"""The doctor's probes of what lies behind the table: Redis, Kafka, workers, beat, providers, and stuck rows."""

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app.queues import BATCH_QUEUE, DEAD_LETTER_TOPIC, LANES, RELAY_QUEUE
from app.services.doctor import Finding, Level

_DUE_WARN_SECONDS = 30.0
_CONNECT_SECONDS = 3.0
_PORTS = {"http": 80, "https": 443, "smtp": 25, "smtps": 465}


@dataclass(frozen=True)
class RedisProbe:
    """Looks at the servers behind BROKER_URL and REDIS_URL; each check raises with what to change."""

    check_broker: Callable[[], None]
    check_limits: Callable[[], None]

    def look(self) -> Iterable[Finding]:
        """Yield a finding for each server."""
        self.check_broker()
        yield Finding("broker", Level.OK, "Redis answers, evicts nothing, is no cluster")
        self.check_limits()
        yield Finding("limits", Level.OK, "Redis answers, is no cluster")


@dataclass(frozen=True)
class KafkaProbe:
    """Looks at the topics. `shapes`: topic → (partitions, replicas, min.insync.replicas or None)."""

    shapes: Callable[[], Mapping[str, tuple[int, int, int | None]]]
    replication: int
    min_insync: int

    def look(self) -> Iterable[Finding]:
        """Yield a finding for each topic."""
        shapes = self.shapes()
        wanted = {lane.topic: lane.partitions for lane in LANES.values()} | {DEAD_LETTER_TOPIC: 1}
        for topic, partitions in wanted.items():
            if topic not in shapes:
                yield Finding(topic, Level.FAIL, "the topic does not exist", "run `arauto topics`")
                continue
            have, replicas, insync = shapes[topic]
            detail = f"{have} partitions, {replicas} replicas"
            if insync is not None and insync > replicas:
                yield Finding(
                    topic,
                    Level.FAIL,
                    f"{detail}, but min.insync.replicas is {insync}: every publication is refused",
                    f"lower min.insync.replicas to at most {replicas}, or add replicas",
                )
            elif have < partitions or replicas < self.replication:
                then = f"{partitions} partitions and {self.replication} replicas are asked for: alter the topic"
                yield Finding(topic, Level.WARN, detail, then)
            elif insync is not None and insync < self.min_insync:
                then = f"set min.insync.replicas to {self.min_insync} (KAFKA_MIN_INSYNC)"
                yield Finding(topic, Level.WARN, f"{detail}, min.insync.replicas {insync}", then)
            else:
                yield Finding(topic, Level.OK, detail)


@dataclass(frozen=True)
class WorkersProbe:
    """Looks at the consumers of the queues. `queues`: worker → its queues; `relay_runs`: relay tasks run so far.

    `wait` lets seconds pass between the two counts of relay runs.
    """

    queues: Callable[[], Mapping[str, set[str]]]
    relay_runs: Callable[[], int]
    tick_seconds: float
    wait: Callable[[float], None]

    def look(self) -> Iterable[Finding]:
        """Yield a finding for each queue, and one for beat."""
        workers = self.queues()
        for queue in (*(lane.queue for lane in LANES.values()), RELAY_QUEUE, BATCH_QUEUE):
            serving = sorted(name for name, queues in workers.items() if queue in queues)
            if serving:
                yield Finding(f"queue {queue}", Level.OK, f"served by {', '.join(serving)}")
            else:
                then = f"start one: celery -A tasks worker -Q {queue}"
                yield Finding(f"queue {queue}", Level.FAIL, "no worker consumes it", then)
        if any(RELAY_QUEUE in queues for queues in workers.values()):
            yield self._beat()

    def _beat(self) -> Finding:
        before = self.relay_runs()
        seconds = max(1.0, 5 * self.tick_seconds)
        self.wait(seconds)
        runs = self.relay_runs() - before
        if runs > 0:
            return Finding("beat", Level.OK, f"the relay ran {runs} times in {seconds:.0f} s")
        then = "start beat: celery -A tasks beat; if it runs, see what the relay worker is stuck in (its log)"
        return Finding("beat", Level.FAIL, f"the relay did not run for {seconds:.0f} s", then)


@dataclass(frozen=True)
class ProvidersProbe:
    """Looks whether a connection to each provider opens. `urls`: channel → (address, is it the sandbox)."""

    urls: Mapping[str, tuple[str, bool]]
    is_production: bool

    def look(self) -> Iterable[Finding]:
        """Yield a finding for each channel."""
        for channel, (url, is_sandbox) in self.urls.items():
            yield self._one(channel, url, is_sandbox=is_sandbox)

    def _one(self, channel: str, url: str, *, is_sandbox: bool) -> Finding:
        part = f"provider {channel}"
        setting = f"{channel}_PROVIDER_URL"
        parts = urlsplit(url)
        if parts.scheme == "null":
            level = Level.FAIL if self.is_production else Level.WARN
            return Finding(part, level, "null: accepts everything, sends nothing", f"set {setting}")
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        if is_sandbox and self.is_production:
            detail = "in production, deliveries go to the sandbox: nobody receives them"
            return Finding(part, Level.FAIL, detail, f"set {setting}")
        name = "the sandbox" if is_sandbox else "it"
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError as error:
            then = "start it: python -m sandbox" if is_sandbox else f"check {setting}, its name and the firewall"
            return Finding(part, Level.FAIL, f"{host}:{port} takes no connection ({error})", then)
        return Finding(part, Level.OK, f"{name} takes connections at {host}:{port}")


@dataclass(frozen=True)
class FlowProbe:
    """Looks for rows that should have moved. `priorities` as in a status snapshot, `breakers` provider → state."""

    look_at: Callable[[], tuple[Mapping[str, Mapping[str, Any]], Mapping[str, str]]]

    def look(self) -> Iterable[Finding]:
        """Yield what stands still, or one finding that nothing does."""
        priorities, breakers = self.look_at()
        clean = True
        for name, row in priorities.items():
            for finding in self._stuck(name, row):
                clean = False
                yield finding
        for provider, state in breakers.items():
            if state != "closed":
                clean = False
                then = "look at the provider; no attempt is spent while it is open, and probes close it again"
                yield Finding("breaker", Level.WARN, f"{provider} is {state}", then)
        if clean:
            yield Finding("flow", Level.OK, "nothing stands still")

    @staticmethod
    def _stuck(name: str, row: Mapping[str, Any]) -> Iterable[Finding]:
        if (row["due_oldest_age_seconds"] or 0) > _DUE_WARN_SECONDS:
            yield Finding(
                f"flow {name}",
                Level.WARN,
                f"{row['due']} rows are due, the oldest for {row['due_oldest_age_seconds']:.0f} s",
                "see that beat, relay and broker run; a backlog beyond a provider's rate waits here by design",
            )
        if row["sending_past_lease"]:
            then = "rescue runs on the relay worker: see that it runs; this heals by itself within seconds"
            yield Finding(
                f"flow {name}", Level.WARN, f"{row['sending_past_lease']} rows are past their lease", then
            )
        if row["unknown_past_window"]:
            then = "the resolver runs on the relay worker: see that it runs"
            yield Finding(
                f"flow {name}",
                Level.WARN,
                f"{row['unknown_past_window']} UNKNOWN rows are past their window",
                then,
            )
