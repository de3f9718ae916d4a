"""Connections to Redis that cannot hang, and the checks that a process makes of its Redis at start.

Celery retries its broker for ever and takes any server; these checks refuse, with a sentence that says what to
change, a server that would lose or refuse messages later.
"""

from typing import Any

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

CONNECT_SECONDS = 1.0
READ_SECONDS = 2.0
HEALTH_CHECK_SECONDS = 15
RETRIES = 1


class UnfitRedisError(RuntimeError):
    """A Redis that answers but cannot do what the pipeline needs; the message says what to change."""


def make_redis(url: str) -> Redis:
    """Return a client whose calls end, with a result or a `redis.RedisError`, in about 8 seconds at worst.

    A connection that lay idle is checked before use, and a call is repeated once on a broken connection: every
    script of this package may run twice without harm. More repeats would multiply: redis-py repeats its
    handshake as often again within each of them.
    """
    return Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=READ_SECONDS,
        socket_keepalive=True,
        health_check_interval=HEALTH_CHECK_SECONDS,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), RETRIES),
    )


def check_broker(url: str) -> None:
    """Raise UnfitRedisError if the server at `url` cannot carry Celery's lists; RedisError if it does not answer.

    An evicting server drops the keys that bind exchanges to queues, and with them messages, without an error. A
    cluster refuses Celery's blocking pop over keys of several slots.
    """
    info = _info(url)
    _refuse_cluster(info, "BROKER_URL")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnfitRedisError(
            f"The Redis at BROKER_URL may evict keys (maxmemory-policy {policy}), which would lose messages. "
            "Run `redis-cli CONFIG SET maxmemory-policy noeviction`, and set it in the server's configuration."
        )


def check_limits(url: str) -> None:
    """Raise UnfitRedisError if the server at `url` cannot keep limits; RedisError if it does not answer."""
    _refuse_cluster(_info(url), "REDIS_URL")


def _info(url: str) -> dict[str, Any]:
    with make_redis(url) as client:
        info: dict[str, Any] = {}
        for section in ("memory", "cluster"):
            info |= client.info(section)
    return info


def _refuse_cluster(info: dict[str, Any], setting: str) -> None:
    if int(info.get("cluster_enabled", 0)):
        raise UnfitRedisError(
            f"The Redis at {setting} runs in cluster mode, which Celery's broker and our scripts cannot use. "
            "Point it at a server with `cluster-enabled no` (one primary, with replicas if you like)."
        )
