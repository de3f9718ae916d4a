"""The simulator's HTTP on raw sockets: what well-behaved and ill-behaved clients send."""

import re
import socket
from urllib.parse import urlsplit

import pytest

from tests.sandbox_client import Sandbox

BODY = b'{"to": "+447700900000", "body": "x", "reference": "%s"}'


def post(reference: bytes, *headers: bytes, to: bytes = b"000") -> bytes:
    body = (BODY % reference).replace(b'000"', to + b'"')
    lines = [b"POST /sms HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def exchange(sandbox: Sandbox, *pieces: bytes, until: bytes = b"", count: int = 1) -> bytes:
    """Write the pieces, each in a packet of its own; read until the marker came `count` times, or the end."""
    where = urlsplit(sandbox.url)
    read = b""
    with socket.create_connection((where.hostname, where.port), timeout=5) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            client.sendall(piece)
        while not until or read.count(until) < count:
            part = client.recv(65_536)
            if not part:
                break
            read += part
    return read


def test_pipelined_requests_are_answered_in_order(sandbox):
    """Also when the first has to wait: the second answer stays behind it."""
    wire = post(b"a", to=b"225") + post(b"b", to=b"400") + post(b"c")
    read = exchange(sandbox, wire, until=b"\r\n\r\n", count=3)
    statuses = re.findall(rb"HTTP/1\.1 (\d{3})", read)
    assert statuses == [b"202", b"400", b"202"]


def test_request_in_single_bytes_is_one_request(sandbox):
    """TCP keeps no message borders."""
    wire = post(b"a")
    read = exchange(sandbox, *(wire[at : at + 1] for at in range(len(wire))), until=b"}")
    assert read.startswith(b"HTTP/1.1 202")
    assert len(sandbox.outbox()) == 1


def test_expect_continue_is_answered_before_the_body(sandbox):
    """A client that asks first would otherwise wait."""
    head, _, body = post(b"a", b"Expect: 100-continue").partition(b"\r\n\r\n")
    where = urlsplit(sandbox.url)
    with socket.create_connection((where.hostname, where.port), timeout=5) as client:
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(100).startswith(b"HTTP/1.1 202")


def test_head_has_no_body_and_close_closes(sandbox):
    """The connection ends after the answer when the client says so."""
    read = exchange(sandbox, b"HEAD /outbox?format=json HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert read.startswith(b"HTTP/1.1 200")
    assert read.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"POST /sms HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /sms HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", b"400"),
        (b"POST /sms HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"POST /sms HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, b"431"),
        (b"\x16\x03\x01" + b"\x00" * 40_000, b"431"),
    ],
)
def test_what_is_no_request_is_refused_and_ends_the_connection(sandbox, wire, status):
    """The process lives on."""
    assert exchange(sandbox, wire).split()[1] == status
    assert sandbox.is_up()


def test_client_that_leaves_a_hanging_call_takes_nothing_with_it(sandbox):
    """The connection and its timer are gone; the next caller is served."""
    where = urlsplit(sandbox.url)
    for _ in range(20):
        with socket.create_connection((where.hostname, where.port), timeout=5) as client:
            client.sendall(post(b"a", to=b"408"))
    assert exchange(sandbox, post(b"b"), until=b"}").startswith(b"HTTP/1.1 202")
