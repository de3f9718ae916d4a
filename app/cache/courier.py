"""The courier: commands to Redis that nobody waits for, sent in batches by one thread a process.

Putting one costs its caller no round trip and never fails. What finds the queue full, or the server away for
longer than a command is worth, is dropped and counted. A courier starts its thread when it is first given
something.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any

import redis

from app.observability import metrics
from app.observability.logging import get_logger

_BATCH = 200
_QUEUE = 100_000
_PAUSE_SECONDS = 0.5

Command = tuple[str | bytes | memoryview | int, ...]

_log = get_logger(__name__)


class Courier:
    """Sends commands in the order in which they were put, each at most once unless it is kept."""

    def __init__(self, client: "redis.Redis", clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._queue: deque[tuple[float, Callable[[], Command]]] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._is_sending = False

    def put(self, command: Callable[[], Command], worth_seconds: float = 0.0) -> None:
        """Take a command, made when it is sent; it is tried again for `worth_seconds` while the server is away."""
        with self._changed:
            if len(self._queue) >= _QUEUE:
                metrics.CACHE_COMMANDS.labels("dropped").inc()
                return
            self._queue.append((self._clock() + worth_seconds, command))
            if self._thread is None:
                self._thread = Thread(target=self._run, name="redis-courier", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, within_seconds: float) -> bool:
        """Wait until everything that was put is sent or dropped; tell whether it was in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._is_sending, within_seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_sending = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._queue))
                batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
                self._is_sending = True
            try:
                results = self._send([command for _, command in batch])
            except (redis.RedisError, OSError) as error:
                self._keep(batch, error)
                continue
            failed = sum(isinstance(result, Exception) for result in results)
            metrics.CACHE_COMMANDS.labels("sent").inc(len(batch) - failed)
            metrics.CACHE_COMMANDS.labels("dropped").inc(failed)

    def _send(self, commands: list[Callable[[], Command]]) -> list[Any]:
        while True:
            made = [command() for command in commands]
            with self._client.pipeline(transaction=False) as pipeline:
                for each in made:
                    pipeline.execute_command(*each)  # type: ignore[no-untyped-call, unused-ignore]
                results: list[Any] = pipeline.execute(raise_on_error=False)
            # A new connection may have changed what the commands should say: see `app.cache.era`.
            if made == [command() for command in commands]:
                return results

    def _keep(self, batch: list[tuple[float, Callable[[], Command]]], error: Exception) -> None:
        """Put back what is still worth a try, before what came meanwhile, and pause."""
        now = self._clock()
        kept = [item for item in batch if item[0] > now]
        metrics.CACHE_COMMANDS.labels("dropped").inc(len(batch) - len(kept))
        _log.debug("redis_courier_waits", reason=type(error).__name__, kept=len(kept))
        with self._changed:
            self._queue.extendleft(reversed(kept))
            self._is_sending = False
            self._changed.notify_all()
            if kept:
                self._changed.wait_for(lambda: False, _PAUSE_SECONDS)
