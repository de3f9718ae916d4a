"""The API as it is really served: Granian, its threads, real sockets."""

import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy.engine import Row

from app.services.tokens import mint
from app.settings import Settings
from embedded.ports import free_port
from embedded.processes import Child, Launch, tail
from tests.integration.api.conftest import PATH, sms
from tests.waiting import eventually

Rows = Callable[..., list[Row[Any]]]


class Server:
    """`arauto api` in a process of its own."""

    def __init__(self, database_url: str, redis_url: str, log: Path) -> None:
        self.port = free_port()
        self.log = log
        environment = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "API_PORT": str(self.port),
            "API_WORKERS": "1",
            "LOG_LEVEL": "INFO",
        }
        self.child = Child(Launch([sys.executable, "-m", "app.cli", "api"], log, environment))
        self.headers = {
            "Authorization": f"Bearer {mint(Settings(_env_file=None), 'demo', 'tests')}",
            "Content-Type": "application/json",
        }

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, self.headers | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def is_up(self) -> bool:
        assert self.child.poll() is None, tail(self.log)
        try:
            return self.request("GET", "/startup")[0] == 200
        except OSError:
            return False

    def say(self, raw: bytes) -> bytes:
        """Send raw bytes and return all that comes back until the server closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as line:
            line.sendall(raw)
            return line.recv(65_536)


@pytest.fixture
def server(database_url: str, nowhere: str, tmp_path: Path) -> Iterator[Server]:
    served = Server(database_url, nowhere, tmp_path / "api.log")
    try:
        eventually(served.is_up, seconds=60)
        yield served
    finally:
        served.child.stop()


def test_fifty_racing_requests_over_sockets_make_one_notification(server: Server, rows: Rows) -> None:
    """Case D01 on the real server: one notification, one answer, all 202."""
    body = json.dumps(sms()).encode()
    start = threading.Barrier(50)

    def call(_: int) -> tuple[int, bytes, str | None]:
        start.wait()
        status, answer, headers = server.request("POST", PATH, body, {"Idempotency-Key": "race"})
        return status, answer, headers.get("idempotency-replayed")

    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(call, range(50)))
    assert {status for status, _, _ in answers} == {202}
    assert len({answer for _, answer, _ in answers}) == 1
    assert [replayed for _, _, replayed in answers].count(None) == 1
    assert len(rows("SELECT FROM notification")) == len(rows("SELECT FROM delivery")) == 1


def test_bodies_and_headers_as_they_come_over_the_wire(server: Server, rows: Rows) -> None:
    """Cases D09 and K07 on the real server: chunks are read, and no byte sequence is a 5xx or a dead process."""
    body = json.dumps(sms()).encode()
    usual = "".join(f"{name}: {value}\r\n" for name, value in server.headers.items()).encode()
    head = b"POST /v1/notifications HTTP/1.1\r\nHost: x\r\n" + usual
    chunks = (
        b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:50], body[50:])) + b"0\r\n\r\n"
    )
    assert b" 202 " in server.say(head + b"Idempotency-Key: c\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)[:20]
    plain = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    for key in ("ы" * 128, "👍", "e\u0301", "a b", "x" * 256):
        assert b" 400 " in server.say(head + b"Idempotency-Key: " + key.encode() + b"\r\n" + plain)[:20], key
    assert b" 400 " in server.say(head + b"Idempotency-Key: \r\n" + plain)[:20]
    long = 262_145
    announced = head + b"Idempotency-Key: l\r\nContent-Length: %d\r\n\r\n" % long + b" " * long
    assert b" 413 " in server.say(announced)[:20]
    padded = body + b" " * (long - 1 - len(body)) + b"and more, which a cut at the limit would hide"
    endless = b"%x\r\n%b\r\n" % (len(padded), padded) + b"0\r\n\r\n"
    answer = server.say(head + b"Idempotency-Key: e\r\nTransfer-Encoding: chunked\r\n\r\n" + endless)
    assert b" 413 " in answer[:20]
    short = head + b"Idempotency-Key: s\r\nContent-Length: 500\r\n\r\n" + body[:20]
    with socket.create_connection(("127.0.0.1", server.port), 10) as line:
        line.sendall(short)
    assert server.request("GET", "/v1/notifications/%00%ff%fe")[0] == 404
    assert server.request("GET", "/live")[0] == 200
    assert len(rows("SELECT FROM notification")) == 1


def test_a_stop_answers_what_has_begun(server: Server, database_url: str, rows: Rows) -> None:
    """SIGTERM while a request waits for the database: it is answered, and the process ends by itself."""
    body = json.dumps(sms()).encode()
    connection = psycopg2.connect(database_url)
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE idempotency_key")
    with ThreadPoolExecutor(1) as thread:
        began = thread.submit(server.request, "POST", PATH, body, {"Idempotency-Key": "k"})
        eventually(lambda: rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        server.child.ask_to_stop()
        connection.close()
        assert began.result(20)[0] == 202
    eventually(lambda: server.child.poll() is not None, seconds=20)
    assert len(rows("SELECT FROM notification")) == 1


def test_a_stop_writes_when_keys_were_last_used(server: Server, rows: Rows) -> None:
    """The first use is on its way to the table, the second one is in memory only when SIGTERM comes.

    Fails when nothing is written at the end of a process, and with an atexit handler, which the server's workers
    do not run.
    """
    key = server.request("POST", "/v1/api-keys", b'{"name": "shop", "scopes": ["notifications:read"]}')
    headers = {"Authorization": f"Bearer {json.loads(key[1])['key']}"}
    used = "SELECT last_used_at FROM api_key WHERE last_used_at IS NOT NULL"
    assert server.request("GET", f"{PATH}/x", headers=headers)[0] == 404
    (first,) = eventually(lambda: rows(used))
    assert server.request("GET", f"{PATH}/x", headers=headers)[0] == 404
    server.child.ask_to_stop()
    eventually(lambda: server.child.poll() is not None, seconds=20)
    assert rows(used)[0].last_used_at > first.last_used_at


def test_a_locked_database_leaves_threads_for_those_who_do_not_need_it(
    server: Server, database_url: str, rows: Rows
) -> None:
    """While every connection hangs and more requests come, /live answers; the rest gets 503 in bounded time."""
    body = json.dumps(sms()).encode()
    connection = psycopg2.connect(database_url)
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE idempotency_key")
    try:
        with ThreadPoolExecutor(40) as threads:
            calls = [
                threads.submit(server.request, "POST", PATH, body, {"Idempotency-Key": f"k{n}"}) for n in range(40)
            ]
            eventually(lambda: len(rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'")) == 8)
            began = time.monotonic()
            assert server.request("GET", "/live")[0] == 200
            assert time.monotonic() - began < 4, "no thread was free"
            statuses = [call.result(30) for call in calls]
    finally:
        connection.close()
    assert {status for status, _, _ in statuses} == {503}
    assert all("retry-after" in headers for _, _, headers in statuses)
    eventually(lambda: server.request("POST", PATH, body, {"Idempotency-Key": "after"})[0] == 202, seconds=15)
