"""The light broker: librdkafka's own mock cluster in a process of its own, where Java is not wanted or not there.

It speaks the Kafka protocol over TCP with groups, rebalances and commits, keeps everything in memory, makes
topics when they are first asked for, and chooses its own port: after a restart its address is another and its
data are gone. Run as a module it prints its bootstrap address as the first line and serves until it is ended.
"""

import signal
import sys
from pathlib import Path
from typing import Self

from embedded.processes import Child, Launch
from embedded.server import Say, Server, ServerError, nothing


class LightBroker(Server):
    """A mock Kafka cluster of one broker; `bootstrap` is known once it is started."""

    name = "kafka"

    def __init__(self, data: Path, *, log: Path | None = None) -> None:
        super().__init__(data, log=log)
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """The address as `KAFKA_BOOTSTRAP_SERVERS` wants it."""
        if not self._bootstrap:
            raise ServerError("the light broker is not started")
        return self._bootstrap

    def launch(self) -> Launch:
        """Return how the broker is started."""
        return Launch([sys.executable, "-m", "embedded.light_broker"], self.log, captures_output=True)

    def is_ready(self) -> bool:
        """Return whether the address is known: the broker listens before it prints it."""
        return bool(self._bootstrap)

    def start(self, say: Say = nothing) -> Self:
        """Start it and learn its address."""
        del say
        self.forget()
        self._child = Child(self.launch())
        self.learn(self._child)
        return self

    def forget(self) -> None:
        """Forget the address of the broker before: the next one has its own."""
        self._bootstrap = ""

    def learn(self, child: Child) -> None:
        """Read the address that a started broker prints; raise ServerError when it ended instead."""
        self._bootstrap = child.output.readline().decode().strip()
        if not self._bootstrap:
            child.kill()
            raise ServerError(f"the light broker did not start; see {self.log}")


def main() -> None:
    """Hold a mock cluster open until a signal comes."""
    from confluent_kafka import Producer  # noqa: PLC0415  only the broker's own process needs the library

    stop_on = {signal.SIGTERM, signal.SIGINT}
    # Blocked before librdkafka makes its threads, which inherit the mask, so that only sigwait sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_on)
    cluster = Producer({"test.mock.num.brokers": 1, "allow.auto.create.topics": True, "log_level": 3})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    sys.stdout.write(",".join(f"{broker.host}:{broker.port}" for broker in brokers) + "\n")
    sys.stdout.flush()
    signal.sigwait(stop_on)


if __name__ == "__main__":
    main()
