"""Flower shows the three queues and their workers, and asks for a password where one is set."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from app.queues import LANES
from app.settings import Settings
from embedded.ports import free_port
from embedded.processes import Child, Launch, tail
from tests.waiting import eventually

_QUEUES = [lane.queue for lane in LANES.values()]


@pytest.fixture
def flower(settings: Settings, tmp_path: Path) -> Iterator[str]:
    """Flower with a password, beside one worker of the three queues."""
    environment = {
        "DATABASE_URL": settings.database_url,
        "REDIS_URL": settings.redis_url,
        "FLOWER_BASIC_AUTH": "ana:secret",
    }
    port = free_port()
    commands = (
        ["worker", "-Q", ",".join(_QUEUES), "-c", "2", "-n", "all@%h"],
        ["flower", "--address=127.0.0.1", f"--port={port}", "--max-tasks=2000"],
    )
    logs = [tmp_path / f"{command[0]}.log" for command in commands]
    children = [
        Child(Launch([sys.executable, "-m", "celery", "-A", "tasks", *command], log, environment))
        for command, log in zip(commands, logs, strict=True)
    ]
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(url), seconds=60, every_seconds=0.2, why=tail(logs[1]))
        yield url
    finally:
        for child in children:
            child.stop()


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/healthcheck", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def read(url: str) -> Any:
    return json.loads(page(url))


def page(url: str) -> str:
    word = base64.b64encode(b"ana:secret").decode()
    with urlopen(Request(url, headers={"Authorization": f"Basic {word}"}), timeout=10) as answer:
        return str(answer.read(), "utf-8")


def test_flower_shows_the_queues_with_their_workers_behind_a_password(flower: str) -> None:
    """Nobody reads it without the password of FLOWER_BASIC_AUTH; with it, workers show the queues they serve."""
    with pytest.raises(HTTPError, match="401") as refused:
        urlopen(f"{flower}/workers", timeout=10)
    refused.value.close()

    def queues() -> set[str]:
        workers = read(f"{flower}/api/workers?refresh=1")
        return {queue["name"] for worker in workers.values() for queue in worker.get("active_queues", [])}

    eventually(lambda: queues() == set(_QUEUES), seconds=60, every_seconds=1)
    broker = page(f"{flower}/broker")
    assert all(f">{name}<" in broker.replace(" ", "").replace("\n", "") for name in _QUEUES)
