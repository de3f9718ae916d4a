"""A client of live inboxes over a plain socket, and a stream process on a loop of its own beside the test."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import urlencode

import redis

from app.domain.inbox_channel import inbox_channel
from app.settings import Settings
from app.streams import serve
from app.streams.server import PATH
from app.wiring_streams import stream_services
from tests.waiting import eventually

Event = tuple[str, str | None, Any]
"""Its name, its id, its data."""


class Follower:
    """One client. `events` and `comments` grow while it is connected; `is_over` when it has ended."""

    def __init__(
        self, port: int, headers: dict[str, str] | None = None, method: str = "GET", **query: str
    ) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        target = f"{PATH}?{urlencode(query)}" if query else PATH
        self.connection.request(method, target, headers=headers or {})
        self._socket = self.connection.sock
        self._thread: threading.Thread | None = None
        self.answer = self.connection.getresponse()
        self.events: list[Event] = []
        self.comments: list[str] = []
        self.retries: list[int] = []
        self.is_over = False
        self.broken: Exception | None = None
        if self.answer.status == 200:
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(10)
        self.answer.close()
        self.connection.close()

    @property
    def error(self) -> dict[str, Any]:
        """What the server said instead of a stream."""
        error: dict[str, Any] = json.loads(self.answer.read())["error"]
        assert set(error) == {"code", "message", "details", "timestamp", "trace_id"}
        return error

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.events]

    def until(self, name: str, times: int = 1, seconds: float = 10) -> Self:
        """Wait for an event of that name."""
        eventually(lambda: self.names.count(name) >= times, seconds=seconds, why=f"{name}: {self.events}")
        return self

    def _read(self) -> None:
        block: list[str] = []
        try:
            for raw in self.answer:
                line = raw.decode().rstrip("\n")
                if line:
                    block.append(line)
                else:
                    self._frame(block)
                    block = []
        except (OSError, http.client.HTTPException) as error:
            self.broken = error
        self.is_over = True

    def _frame(self, block: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in block if not line.startswith(":"))
        self.comments += [line[1:].strip() for line in block if line.startswith(":")]
        if "retry" in fields:
            self.retries.append(int(fields["retry"]))
        if "data" in fields:
            self.events.append((fields.get("event", ""), fields.get("id"), json.loads(fields["data"])))


@contextmanager
def streaming(settings: Settings) -> Iterator[Callable[[], None]]:
    """Serve streams in a thread; the value stops the server and waits for its end."""
    services = stream_services(settings)
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    broken: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(serve(settings, services, stop, started.set))
        except BaseException as error:
            broken.append(error)
            raise
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()

    def end() -> None:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(15)
        assert not thread.is_alive()
        assert not broken

    try:
        assert started.wait(10)
        yield end
    finally:
        end()


def publish(url: str, user: str, identifier: str | None, event: str = "created", tenant: str = "demo") -> int:
    """Publish as the service does; return how many processes heard it."""
    message = json.dumps({"event": event, "id": identifier, "at": "2026-11-30T12:00:00Z"})
    with redis.Redis.from_url(url) as client:
        return int(client.publish(inbox_channel(tenant, user), message))
