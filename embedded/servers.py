"""The servers of a stack: which are ours and which were given, on which ports, and how the others reach them."""

import asyncio
from pathlib import Path

from app.settings import Settings
from embedded.folder import DataFolder
from embedded.kafka import Kafka
from embedded.keeper import Recipe, with_environment
from embedded.light_broker import LightBroker
from embedded.ports import PortBook
from embedded.postgres import Postgres
from embedded.processes import MARK, Child
from embedded.server import Say, Server, ServerError
from embedded.terminal import Terminal
from embedded.valkey import Valkey

_PORTS = {"postgres": 5432, "valkey": 6379, "kafka": 9092, "sandbox": 8025, "smtp": 2525}


class Servers:
    """PostgreSQL, Valkey and the broker of one stack, with the ports of all its parts."""

    def __init__(self, folder: DataFolder, settings: Settings, terminal: Terminal) -> None:
        self._folder = folder
        self._settings = settings
        self._terminal = terminal
        self._book = PortBook()
        self._is_given = {
            "postgres": "database_url" in settings.model_fields_set,
            "valkey": "redis_url" in settings.model_fields_set,
            "kafka": "kafka_bootstrap_servers" in settings.model_fields_set,
        }
        self.with_kafka = settings.transport == "kafka"
        self.ports = {name: self._take(name, port) for name, port in self._wanted().items()}
        port = self.ports.get("postgres", 1)
        self._postgres = Postgres(folder.path / "postgres", port, log=self._log("postgres"))
        self._valkey = Valkey(folder.path / "valkey", self.ports.get("valkey", 1), log=self._log("valkey"))
        self._broker: Kafka | LightBroker | None = None
        self._last_bootstrap = ""

    def _wanted(self) -> dict[str, int]:
        wanted = _PORTS | {
            "api": self._settings.api_port,
            "stream": self._settings.stream_port,
            "flower": self._settings.flower_port,
        }
        return {name: port for name, port in wanted.items() if not self._is_given.get(name)}

    def _take(self, name: str, wanted: int) -> int:
        port = self._book.take(wanted)
        if port != wanted:
            self._terminal.event(name, f"port {wanted} is taken, using {port}")
        return port

    def _log(self, name: str) -> Path:
        return self._folder.logs / f"{name}.log"

    def given(self) -> list[str]:
        """Return the names of PostgreSQL and Valkey where they were there already."""
        return [name for name in ("postgres", "valkey") if self._is_given[name]]

    def recipes(self) -> list[Recipe]:
        """Return how PostgreSQL and Valkey are kept, as far as they are ours."""
        ours: list[Server] = [self._postgres, self._valkey]
        return [self._recipe(server) for server in ours if not self._is_given[server.name]]

    def _recipe(self, server: Server) -> Recipe:
        return Recipe(
            server.name,
            launch=lambda: with_environment(server.launch(), self._mark()),
            is_ready=lambda _, __: server.is_ready(),
            prepare=server.prepare,
            start_seconds=server.start_seconds,
            port=server.port,
        )

    async def choose_broker(self, wanted: str) -> Recipe | None:
        """Return how the broker is kept; None when it was given or is not needed.

        Raise ServerError when Apache Kafka was asked for by name and cannot be had.
        """
        if not self.with_kafka or self._is_given["kafka"]:
            return None
        if wanted != "light":
            kafka = Kafka(
                self._folder.path / "kafka",
                self.ports["kafka"],
                log=self._log("kafka"),
                repository=self._settings.maven_repository_url,
            )
            try:
                await asyncio.to_thread(kafka.prepare, self._progress("kafka"))
            except ServerError as error:
                if wanted == "kafka":
                    raise
                reason = str(error).splitlines()[0]
                self._terminal.event("kafka", f"using the light broker (in memory only): {reason}")
            else:
                self._broker = kafka
                return self._recipe(kafka)
        light = LightBroker(self._folder.path / "light", log=self._log("kafka"))
        self._broker = light
        return Recipe(
            "kafka",
            launch=lambda: with_environment(light.launch(), self._mark()),
            is_ready=lambda child, _: _learn(light, child),
            prepare=lambda _: light.forget(),
        )

    def _progress(self, name: str) -> Say:
        def say(text: str) -> None:
            if text:
                self._terminal.progress(name, text)

        return say

    def address_changed(self) -> bool:
        """Return whether the broker's address differs from the one its clients were started with."""
        before, self._last_bootstrap = self._last_bootstrap, self.bootstrap()
        return before not in {"", self._last_bootstrap}

    def bootstrap(self) -> str:
        """Return the broker's address; raise ServerError while the light broker has none."""
        if self._broker is not None:
            return self._broker.bootstrap
        return self._settings.kafka_bootstrap_servers if self.with_kafka else ""

    def _known_bootstrap(self) -> str:
        """Return the broker's address, or the one it had while the light broker is being started again."""
        try:
            return self.bootstrap()
        except ServerError:
            return self._last_bootstrap

    def _mark(self) -> dict[str, str]:
        return {MARK: str(self._folder.path)}

    def addresses(self) -> dict[str, object]:
        """Return where everything is, as `run.json` names it."""
        broker = "light" if isinstance(self._broker, LightBroker) else "kafka"
        return {
            "api": f"http://127.0.0.1:{self.ports['api']}",
            "stream": f"http://127.0.0.1:{self.ports['stream']}",
            "flower": f"http://127.0.0.1:{self.ports['flower']}",
            "sandbox": f"http://127.0.0.1:{self.ports['sandbox']}",
            "database_url": self._settings.database_url if self._is_given["postgres"] else self._postgres.url,
            "redis_url": self._settings.redis_url if self._is_given["valkey"] else self._valkey.url,
            "kafka_bootstrap": self._known_bootstrap(),
            "broker": broker if self.with_kafka else "direct",
        }

    def environment(self) -> dict[str, str]:
        """Return the variables by which our processes find each other."""
        where = self.addresses_of_servers()
        return {
            **self._mark(),
            **where,
            "SANDBOX_URL": f"http://127.0.0.1:{self.ports['sandbox']}",
            "SANDBOX_SMTP_URL": f"smtp://127.0.0.1:{self.ports['smtp']}",
            "API_HOST": "127.0.0.1",
            "API_PORT": str(self.ports["api"]),
            "STREAM_HOST": "127.0.0.1",
            "STREAM_PORT": str(self.ports["stream"]),
            "FLOWER_PORT": str(self.ports["flower"]),
            "TRANSPORT": self._settings.transport,
            "PYTHONUNBUFFERED": "1",
        }

    def addresses_of_servers(self) -> dict[str, str]:
        """Return the variables of the servers that are known by now."""
        about = {
            "DATABASE_URL": self._settings.database_url if self._is_given["postgres"] else self._postgres.url,
            "REDIS_URL": self._settings.redis_url if self._is_given["valkey"] else self._valkey.url,
        }
        if bootstrap := self._known_bootstrap():
            about["KAFKA_BOOTSTRAP_SERVERS"] = bootstrap
        if isinstance(self._broker, LightBroker):
            # It answers an empty fetch only when the wait is over, whatever was produced meanwhile.
            about["KAFKA_FETCH_WAIT_SECONDS"] = "0.02"
        return about

    def close(self) -> None:
        """Give the ports back."""
        self._book.close()


def _learn(light: LightBroker, child: Child) -> bool:
    if not light.is_ready():
        light.learn(child)
    return light.is_ready()
