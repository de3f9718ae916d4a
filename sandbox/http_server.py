"""The HTTP side: a generic gateway for SMS and push, and the pages about what arrived.

`POST /sms` and `POST /push` take `{"reference", "to", "title", "body", "sender"}`. The answers are
202 `{"id", "status"}`, or an error `{"error": {"code", "message", "scope"}}` with `Retry-After` where it applies.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from sandbox.gateway import Gateway, Verdict
from sandbox.http_wire import HttpConnection, Reply, Request
from sandbox.page import outbox_page
from sandbox.records import OUTBOX_ROWS, Filter

MAX_LIMIT_DIGITS = 9
_PATHS = frozenset({"/", "/outbox", "/stats", "/health", "/limits", "/behaviour", "/sms", "/push"})
_SENDS = {"/sms": "sms", "/push": "push"}
_JSON = "application/json"
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"

_ERRORS: dict[str, tuple[int, str, str, str]] = {
    "failed": (503, "unavailable", "The gateway cannot take this message now.", "provider"),
    "down": (503, "unavailable", "The gateway is down.", "provider"),
    "gone": (400, "recipient_gone", "There is no such recipient.", "recipient"),
    "throttled": (429, "throttled", "Too many messages to this recipient.", "recipient"),
    "rate_limited": (429, "rate_limited", "The account sends too many messages a second.", "account"),
}
_ERROR_BODIES = {
    outcome: orjson.dumps({"error": {"code": code, "message": message, "scope": scope}})
    for outcome, (_, code, message, scope) in _ERRORS.items()
}


class HttpServer:
    """Serves one `Gateway` over HTTP."""

    def __init__(self, gateway: Gateway, token: str = "") -> None:
        self._gateway = gateway
        self._authorization = f"Bearer {token}" if token else ""
        self._ids = 0
        self._open: set[HttpConnection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Bind, and return the port that was bound (asked with 0: a free one)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self.handle, self._open), host, port, backlog=2048
        )
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.abort()

    def handle(self, request: Request) -> Reply:
        """Answer one request."""
        if request.method == "POST":
            channel = _SENDS.get(request.target)
            if channel is not None:
                return self._send(request, channel)
        return self._other(request)

    def _send(self, request: Request, channel: str) -> Reply:
        if self._authorization and request.header(b"authorization") != self._authorization:
            self._gateway.refuse(channel, "unauthorized")
            return _error(401, "unauthorized", "The bearer token is missing or wrong.")
        try:
            message = orjson.loads(request.body)
            recipient, body = message["to"], message["body"]
            reference, title = message.get("reference") or "", message.get("title") or ""
            collapse_key, ttl = message.get("collapse_key") or "", message.get("ttl_seconds")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            self._gateway.refuse(channel, "invalid")
            return _error(400, "invalid", "The body must be a JSON object with `to` and `body`.")
        if not all(isinstance(text, str) for text in (recipient, body, reference, title, collapse_key)):
            self._gateway.refuse(channel, "invalid")
            return _error(400, "invalid", "`to`, `body`, `title`, `reference` and `collapse_key` must be strings.")
        if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 0):
            self._gateway.refuse(channel, "invalid")
            return _error(400, "invalid", "`ttl_seconds` must be a whole number that is not negative.")
        texts = (recipient, reference, title, body)
        return self._reply(self._gateway.take(channel, *texts, collapse_key=collapse_key, ttl_seconds=ttl))

    def _reply(self, verdict: Verdict) -> Reply:
        delay = verdict.delay_seconds
        if verdict.outcome == "accepted":
            self._ids += 1
            return Reply(202, b'{"id":"sb-%d","status":"accepted"}' % self._ids, delay_seconds=delay)
        if verdict.outcome in {"dropped", "hanging"}:
            return Reply(202, delay_seconds=delay, drops=True)
        wait = verdict.retry_after_seconds
        headers = (("Retry-After", str(wait)),) if wait else ()
        body = _ERROR_BODIES[verdict.outcome]
        return Reply(_ERRORS[verdict.outcome][0], body, headers=headers, delay_seconds=delay)

    def _other(self, request: Request) -> Reply:
        path = urlsplit(request.target).path
        match request.method, path:
            case "GET" | "HEAD", "/outbox":
                reply = self._outbox(request)
            case "DELETE", "/outbox":
                self._gateway.clear()
                reply = Reply(204)
            case "GET", "/stats":
                reply = _json(self._gateway.records.stats())
            case "GET", "/health":
                reply = _json({"status": "ok"})
            case "PUT", "/limits":
                reply = self._put(request, self._gateway.set_limits)
            case "PUT", "/behaviour":
                reply = self._put(request, self._gateway.set_behaviours)
            case "GET", "/":
                reply = Reply(302, headers=(("Location", "/outbox"),))
            case _ if path in _PATHS:
                reply = _error(405, "method_not_allowed", "This address does not take that method.")
            case _:
                reply = _error(404, "not_found", "There is nothing here. The outbox is at /outbox.")
        return reply

    def _outbox(self, request: Request) -> Reply:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.target).query).items()}
        try:
            wanted = _filter(query)
        except ValueError as error:
            return _error(400, "invalid", str(error))
        calls = list(self._gateway.records.newest(wanted))
        if query.get("format") == "json" or _JSON in request.header(b"accept"):
            return _json([call.as_json() for call in calls])
        page = outbox_page(calls, wanted, self._gateway.records.stats())
        policy = (("Content-Security-Policy", _PAGE_POLICY),)
        return Reply(200, page.encode("utf-8", "replace"), "text/html; charset=utf-8", policy)

    def _put(self, request: Request, setter: Callable[[dict[str, Any]], None]) -> Reply:
        try:
            wanted = orjson.loads(request.body)
            setter(wanted if isinstance(wanted, dict) else {"": wanted})
        except ValueError as error:
            return _error(400, "invalid", str(error))
        return _json({"limits": self._gateway.limits, "behaviour": self._gateway.behaviours})


def _filter(query: dict[str, str]) -> Filter:
    """Read the filter of an outbox query; raise ValueError for a limit that is no number."""
    text = query.get("limit", "100")
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_LIMIT_DIGITS):
        raise ValueError("limit must be a whole number that is not negative")
    return Filter(
        recipient=query.get("recipient", "").strip(),
        channel=query.get("channel", "").strip().upper(),
        reference=query.get("reference", "").strip(),
        limit=min(int(text), OUTBOX_ROWS),
    )


def _json(value: object) -> Reply:
    return Reply(200, orjson.dumps(value))


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, orjson.dumps({"error": {"code": code, "message": message, "scope": "message"}}))
