"""Servers for the tests: real ones, from the packages of `make run`, started once a session when first asked for.

Each test gets a fresh database (a clone of a migrated template) and an empty Valkey. A module gets a fresh light
broker. Apache Kafka is started only when a test asks for it, or is taken from KAFKA_BOOTSTRAP_SERVERS.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import redis
from sqlalchemy.engine import Engine

from app.db.session import make_engine, migrate
from app.settings import Settings
from embedded.light_broker import LightBroker
from embedded.ports import free_port
from embedded.postgres import Postgres
from embedded.processes import Child, Launch, tail
from embedded.valkey import Valkey
from tests import failures_at_once
from tests.sandbox_client import Sandbox
from tests.waiting import eventually

_numbers = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Say a failure at once."""
    failures_at_once.register(config)


def _execute(url: str, *statements: str) -> None:
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """PostgreSQL for the session, without fsync: no test pulls the plug of the machine."""
    with Postgres(tmp_path_factory.mktemp("postgres") / "data", is_durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def template_database(postgres: Postgres) -> str:
    """The name of a migrated database that nothing is connected to, for cloning."""
    name = "template_migrated"
    _execute(postgres.url, f"CREATE DATABASE {name}")
    migrate(postgres.url_of(name))
    return name


@pytest.fixture
def make_database(postgres: Postgres, template_database: str) -> Iterator[Callable[[], str]]:
    """A factory of fresh, migrated databases; they are dropped after the test."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test_{os.getpid()}_{next(_numbers)}")
        _execute(postgres.url, f"CREATE DATABASE {made[-1]} TEMPLATE {template_database} STRATEGY FILE_COPY")
        return postgres.url_of(made[-1])

    yield make
    _execute(postgres.url, *(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)" for name in made))


@pytest.fixture
def database_url(make_database: Callable[[], str]) -> str:
    """The address of a fresh, migrated database of this test's own."""
    return make_database()


@pytest.fixture
def empty_database_url(postgres: Postgres) -> Iterator[str]:
    """The address of a fresh database without any table, for tests of the migrations."""
    name = f"empty_{os.getpid()}_{next(_numbers)}"
    _execute(postgres.url, f"CREATE DATABASE {name}")
    yield postgres.url_of(name)
    _execute(postgres.url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on the test's database."""
    made = make_engine(database_url, application_name="test", pool_size=20)
    yield made
    made.dispose()


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """Valkey for the session, in memory only."""
    with Valkey(tmp_path_factory.mktemp("valkey") / "data", is_durable=False) as server:
        yield server


@pytest.fixture
def redis_url(valkey: Valkey) -> str:
    """The address of an empty Valkey."""
    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
    return valkey.url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator["redis.Redis"]:
    """A client of the empty Valkey, answering bytes as the service's own client does."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(scope="module")
def light_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a mock Kafka cluster of this module's own."""
    with LightBroker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of Apache Kafka: of KAFKA_BOOTSTRAP_SERVERS, else of one started for the session."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield given
        return
    from embedded.kafka import Kafka

    with Kafka(tmp_path_factory.mktemp("kafka") / "data") as server:
        yield server.bootstrap


@pytest.fixture
def make_settings(request: pytest.FixtureRequest) -> Callable[..., Settings]:
    """A factory of Settings on the test's own servers; keyword arguments override, and spare their server."""

    def make(**chosen: Any) -> Settings:
        servers = {
            "database_url": "database_url",
            "redis_url": "redis_url",
            "kafka_bootstrap_servers": "light_broker",
        }
        for setting, fixture in servers.items():
            if setting not in chosen:
                chosen[setting] = request.getfixturevalue(fixture)
        chosen.setdefault("kafka_fetch_wait_seconds", 0.02)  # the light broker answers only when it is over
        return Settings(_env_file=None, **chosen)

    return make


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    """Settings on the test's own servers, everything else at its default."""
    return make_settings()


@pytest.fixture(scope="session")
def sandbox_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The provider simulator for the session."""
    http, smtp = free_port(), free_port()
    log: Path = tmp_path_factory.mktemp("sandbox") / "sandbox.log"
    command = [sys.executable, "-m", "sandbox", "--http-port", str(http), "--smtp-port", str(smtp)]
    child = Child(Launch(command, log))
    client = Sandbox(f"http://127.0.0.1:{http}", f"smtp://127.0.0.1:{smtp}")
    try:
        eventually(lambda: child.poll() is not None or client.is_up(), seconds=30)
        assert child.poll() is None, f"the sandbox ended: {tail(log)}"
        yield client
    finally:
        child.stop()


@pytest.fixture
def sandbox(sandbox_process: Sandbox) -> Sandbox:
    """The provider simulator, its outbox empty."""
    sandbox_process.clear()
    return sandbox_process
