"""What an HTTP gateway can do to a call below the level of its answers, and what must come of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from providers.base import Message
from providers.http import MAX_ANSWER_BYTES
from providers.outcome import Accepted, Misconfigured, Outcome, Retry, Unknown
from providers.registry import build

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MESSAGE = Message("0190-ref", "+447700900000", "Hi", "It is 123456.", metadata={"order": "7"})


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Return the request line, the headers by lower-case name, and the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return head[0], headers, await reader.readexactly(int(headers["content-length"]))


def send_to(
    talk: Talk, channel: str = "SMS", token: str = "", times: int = 1, path: str = "/x?key=a%2Fb"
) -> list[Outcome]:
    """Send through an adapter to a server that runs `talk` on each connection."""

    async def run() -> list[Outcome]:
        async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(connection, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        provider = build(
            channel, f"http://127.0.0.1:{port}{path}", token=token, sender="Arauto", timeout_seconds=3
        )
        try:
            return [await provider.send(MESSAGE) for _ in range(times)]
        finally:
            await provider.close()
            server.close()

    return asyncio.run(run())


def answering(raw: bytes, seen: list[tuple[str, dict[str, str], bytes]] | None = None) -> Talk:
    """A server that answers every request on a connection with these bytes, then closes it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if seen is not None:
            seen.append(request)
        writer.write(raw)
        await writer.drain()

    return talk


OK = b'HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\nConnection: close\r\n\r\n{"id":"p"}'


@pytest.mark.parametrize(
    ("channel", "fields"),
    [
        ("SMS", {"title": "Hi", "sender": "Arauto"}),
        ("PUSH", {"title": "Hi", "sender": "Arauto", "collapse_key": "0190-ref", "data": {"order": "7"}}),
    ],
)
def test_request_carries_reference_key_and_token(channel, fields):
    """The delivery id is reference, Idempotency-Key and, for push, collapse key; the URL is used as it stands."""
    seen: list[tuple[str, dict[str, str], bytes]] = []
    (outcome,) = send_to(answering(OK, seen), channel, token="t0ken")
    assert outcome == Accepted("p")
    line, headers, body = seen[0]
    assert line == "POST /x?key=a%2Fb HTTP/1.1"
    assert headers["authorization"] == "Bearer t0ken"
    assert headers["idempotency-key"] == "0190-ref"
    assert headers["content-type"] == "application/json"
    expected = {"reference": "0190-ref", "to": "+447700900000", "body": "It is 123456.", **fields}
    assert json.loads(body) == expected


def test_redirect_is_not_followed():
    """It would carry content and token to an address that nobody configured."""
    seen: list[tuple[str, dict[str, str], bytes]] = []
    moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /y\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    (outcome,) = send_to(answering(moved, seen), token="t0ken")
    assert isinstance(outcome, Misconfigured)
    assert len(seen) == 1


def test_answer_cut_after_its_status_is_as_good_as_the_status():
    """The provider said 202; that its body never came changes nothing about the message."""
    cut = b'HTTP/1.1 202 Accepted\r\nContent-Length: 500\r\n\r\n{"id":'
    assert send_to(answering(cut)) == [Accepted(None)]
    late = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 500\r\n\r\n"
    (outcome,) = send_to(answering(late))
    assert isinstance(outcome, Retry)


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 202", b"SMTP, surely?\r\n\r\n", b"\x00" * 100])
def test_no_readable_answer_leaves_the_outcome_unknown(raw):
    """The request was written, so the message may have been taken."""
    (outcome,) = send_to(answering(raw))
    assert isinstance(outcome, Unknown)


def test_call_is_never_repeated_on_a_connection_that_died():
    """The client library repeats idempotent methods on a dead keep-alive connection; a POST it must not."""
    requests: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (OK.replace(b"Connection: close\r\n", b""), b""):
            requests.append((await read_request(reader))[0])
            writer.write(answer)
            await writer.drain()

    first, second = send_to(talk, times=2)
    assert isinstance(first, Accepted)
    assert isinstance(second, Unknown)
    assert len(requests) == 2


def test_endless_answer_is_cut():
    """A gateway cannot fill the worker's memory; the status counts."""
    written = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(b"HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n")
        try:
            while written < 100 * MAX_ANSWER_BYTES:
                writer.write(b"x" * 65_536)
                await writer.drain()
                written += 65_536
        except ConnectionError:
            return

    assert send_to(talk) == [Accepted(None)]
    assert written < 100 * MAX_ANSWER_BYTES


def test_connections_are_used_again():
    """Twenty calls one after the other need one connection."""
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while True:
                await read_request(reader)
                writer.write(OK.replace(b"Connection: close\r\n", b""))
                await writer.drain()
        except asyncio.IncompleteReadError:
            return

    assert send_to(talk, times=20) == [Accepted("p")] * 20
    assert connections == 1
