"""Apache Kafka as one KRaft node (broker and controller in one process), for `make run` and the kill suites.

Its data folder is formatted at the first start, and again after it was wiped: the pipeline survives the loss of
all that was in it. Topics are made by the service, never by a client's guess.
"""

import signal
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from embedded import jars
from embedded.java import find_java
from embedded.ports import free_port
from embedded.processes import Launch, tail
from embedded.server import Say, Server, ServerError, nothing

_API_VERSIONS = 18
_CORRELATION = 0x4152
_HEAD = struct.Struct(">iih")
_ANSWER_SECONDS = 3.0

_MEMORY = (
    "-Xms96m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)
# Output of slf4j-simple, which Kafka's own log goes through: only what is worth reading after a fault.
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)


class Kafka(Server):
    """One Kafka broker on the loopback interface."""

    name = "kafka"
    start_seconds = 90.0
    start_tries = 2

    def __init__(
        self,
        data: Path,
        port: int | None = None,
        *,
        log: Path | None = None,
        cache: Path | None = None,
        repository: str = "",
    ) -> None:
        super().__init__(data, port, log=log)
        self._cache = cache or jars.default_cache()
        self._repository = repository
        self._controller_port = free_port()
        self._jars = jars.pinned()

    @property
    def bootstrap(self) -> str:
        """The address as `KAFKA_BOOTSTRAP_SERVERS` wants it."""
        return f"127.0.0.1:{self.port}"

    def prepare(self, say: Say = nothing) -> None:
        """Fetch the jars at the first start ever, format the storage where there is none."""
        java = find_java()
        self._fetch(say)
        self.data.mkdir(parents=True, exist_ok=True)
        self._controller_port = free_port()
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        if not (self.data / "log" / "meta.properties").exists():
            self._format(java)

    @property
    def _configuration(self) -> Path:
        return self.data / "server.properties"

    def _fetch(self, say: Say) -> None:
        try:
            jars.fetch(self._jars, self._cache, self._repository, say)
        except PermissionError:  # a home that cannot be written to: keep them with the data
            self._cache = self.data.parent / "jars"
            jars.fetch(self._jars, self._cache, self._repository, say)

    def _properties(self) -> dict[str, Any]:
        controller = f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            # Static voters: a dynamic quorum would keep the controller's port in its data, and the port may
            # change.
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data / "log",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # After kill -9 the next start waits until the controller has given the old broker up.
            "broker.session.timeout.ms": 6000,
            "broker.heartbeat.interval.ms": 1000,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.segment.bytes": 64 * 1024 * 1024,
            "log.retention.hours": 72,
            "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
            "log.index.size.max.bytes": 1024 * 1024,
        }

    def _java(self, java: str, main: str, *arguments: str) -> list[str]:
        path = jars.class_path(self._jars, self._cache)
        return [java, *_MEMORY, *_LOGGING, "-cp", path, main, *arguments]

    def _format(self, java: str) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # A random id may begin with a dash, which the tool would read as an option.
        cluster = "A" + cluster[1:]
        command = self._java(
            java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._configuration)
        )
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if done.returncode:
            raise ServerError(f"Kafka's storage could not be formatted; the end of {self.log}:\n{tail(self.log)}")

    def launch(self) -> Launch:
        """Return how the broker is started."""
        return Launch(
            self._java(find_java(), "kafka.Kafka", str(self._configuration)),
            self.log,
            folder=self.data,
            stop_seconds=20.0,
            death_signal=signal.SIGKILL,
        )

    def is_ready(self) -> bool:
        """Return whether the broker serves requests: it does so once it is a member of its own cluster."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
                return _answers(line)
        except OSError:
            return False


def _answers(line: socket.socket) -> bool:
    """Ask for the versions of the protocol, the request that every Kafka answers first.

    Written out by hand, because the client library has aborted a whole process when a broker died during a
    request, and this one is the supervisor.
    """
    request = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, -1)
    line.settimeout(_ANSWER_SECONDS)
    line.sendall(struct.pack(">i", len(request)) + request)
    head = b""
    while len(head) < _HEAD.size and (more := line.recv(_HEAD.size - len(head))):
        head += more
    if len(head) < _HEAD.size:
        return False
    _, correlation, error = _HEAD.unpack(head)
    return bool(correlation == _CORRELATION and error == 0)
