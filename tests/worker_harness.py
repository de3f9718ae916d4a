"""A delivery worker of this process on the test's own PostgreSQL and Valkey, with a scripted provider."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import Any

import pytest

from app import wiring_worker
from app.domain.kinds import Channel, Priority
from app.services.deliver.countdowns import Countdown
from app.services.deliver.worker import DeliveryWorker
from providers.base import Message
from providers.outcome import Accepted, Outcome

Script = Callable[[Message], Awaitable[Outcome]]


async def accept(message: Message) -> Outcome:
    """Take the message."""
    return Accepted(f"id-{message.reference}")


class ScriptedProvider:
    """Answers as its script says, and remembers each call: reference and monotonic instant."""

    def __init__(self, script: Script = accept, *, name: str = "scripted", deadline_seconds: float = 5.0) -> None:
        self.name = name
        self.deadline_seconds = deadline_seconds
        self.script = script
        self.calls: list[tuple[str, float]] = []
        self._lock = Lock()

    def count(self, reference: str) -> int:
        """Return how many calls there were for one delivery."""
        return sum(called == reference for called, _ in self.calls)

    async def start(self) -> None:
        """Nothing to open."""

    async def send(self, message: Message) -> Outcome:
        """Remember the call and answer by the script."""
        with self._lock:
            self.calls.append((message.reference, monotonic()))
        return await self.script(message)

    async def close(self) -> None:
        """Nothing to close."""


class Running:
    """A started worker with what it sent away."""

    def __init__(self, worker: DeliveryWorker, countdowns: list[Countdown]) -> None:
        self.worker = worker
        self.countdowns = countdowns

    def park(
        self,
        ids: list[str],
        *,
        channel: Channel = Channel.SMS,
        priority: Priority = Priority.LOW,
        attempt: int | None = None,
        is_suspect: bool = False,
    ) -> None:
        """Park ids as a task would."""
        self.worker.park(priority, channel, ids, attempt=attempt, is_suspect=is_suspect)


@pytest.fixture
def run_worker(monkeypatch: pytest.MonkeyPatch, make_settings: Callable[..., Any]) -> Callable[..., Any]:
    """A context manager that runs a worker with the given providers, and settings laid over the test's own."""

    @contextmanager
    def run(
        provider: ScriptedProvider,
        others: dict[Channel, ScriptedProvider] | None = None,
        **chosen: Any,
    ) -> Iterator[Running]:
        countdowns: list[Countdown] = []
        by_channel = dict.fromkeys(Channel, provider) | (others or {})
        monkeypatch.setattr(wiring_worker, "provider", lambda _settings, channel: by_channel[channel])
        monkeypatch.setattr(wiring_worker, "send_retry", countdowns.append)
        defaults = {"kafka_bootstrap_servers": "127.0.0.1:1", "worker_stop_seconds": 3.0}
        worker = wiring_worker.worker.__wrapped__(make_settings(**(defaults | chosen)))
        worker.start()
        try:
            yield Running(worker, countdowns)
        finally:
            worker.stop()

    return run
