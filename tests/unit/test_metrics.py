"""The metrics port: served when asked for, on the next free port beside a sibling, shared through a folder."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from app.observability import metrics
from app.settings import Settings


@pytest.fixture
def port() -> int:
    """A port with free ones after it, most likely."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        chosen: int = probe.getsockname()[1]
    return min(chosen, 60_000)


@pytest.fixture
def serve() -> Iterator[Callable[..., bool]]:
    """Serve with these settings, and close it all in the end; tells whether a port was opened."""
    closers: list[Callable[[], None]] = []

    def start(port: int, **chosen: str) -> bool:
        close = metrics.serve(Settings(_env_file=None, metrics_port=port, **chosen))  # type: ignore[arg-type]
        if close is not None:
            closers.append(close)
        return close is not None

    yield start
    for close in closers:
        close()


def read(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return answer.read().decode()


def test_nothing_is_opened_without_a_port(serve: Callable[..., bool]) -> None:
    """The default opens no port at all."""
    assert serve(0) is False


def test_what_was_counted_is_served(serve: Callable[..., bool], port: int) -> None:
    """A counter that a process moved is on its port, with its labels."""
    metrics.DEFERRED.labels("rate").inc()
    assert serve(port)
    assert 'delivery_deferred_total{reason="rate"}' in read(port)


def test_a_second_process_takes_the_next_free_port(serve: Callable[..., bool], port: int) -> None:
    """Several workers of one machine share a setting."""
    assert serve(port)
    assert serve(port)
    assert "delivery_claim_lost_total" in read(port + 1)


def test_with_a_shared_folder_one_process_serves_for_all(
    serve: Callable[..., bool], port: int, tmp_path: object
) -> None:
    """A worker process of the API that finds the port taken is content: its sibling serves the sum."""
    assert serve(port, prometheus_multiproc_dir=str(tmp_path))
    assert serve(port, prometheus_multiproc_dir=str(tmp_path)) is False
    read(port)


def test_with_a_shared_folder_any_process_answers_for_its_siblings(tmp_path: Path) -> None:
    """Fails when `/metrics` of an API with several processes tells only of the one that was asked."""
    count = "from app.observability import metrics; metrics.CANCELLED.inc(7)"
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", count], env=environment, check=True)
    settings = Settings(_env_file=None, prometheus_multiproc_dir=str(tmp_path))  # type: ignore[call-arg]
    assert b"notification_cancelled_total 7.0" in metrics.exposition(settings)
