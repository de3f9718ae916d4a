"""The HTTP side: a generic gateway for SMS and push, and the pages about what arrived.

A plain function dispatches instead of a routed application: under load the simulator shares its cores with
the service that it measures, so a call may cost little.

`POST /sms` and `POST /push` take `{"reference", "to", "title", "body", "sender"}`. The answers are
202 `{"id", "status"}`, or an error `{"error": {"code", "message", "scope"}}` with `Retry-After` where it applies.
"""

import asyncio
from collections.abc import Callable, Mapping
from math import isinf
from typing import Any

import orjson
from aiohttp import web

from sandbox.gateway import Gateway, Verdict
from sandbox.page import outbox_page
from sandbox.records import OUTBOX_ROWS, Filter

MAX_BODY_BYTES = 1024 * 1024
NEVER_SECONDS = 24 * 3600.0
_PATHS = frozenset({"/", "/outbox", "/stats", "/health", "/limits", "/behaviour", "/sms", "/push"})
MAX_LIMIT_DIGITS = 9
_SENDS = {"/sms": "sms", "/push": "push"}
_JSON = "application/json"

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

    async def listen(self, host: str, port: int) -> tuple[web.ServerRunner, int]:
        """Bind, and return the runner with the port that was bound (asked with 0: a free one)."""
        # A caller that gives up must free its handler: a hanging one would live for a day.
        server = web.Server(self.handle, access_log=None, handler_cancellation=True, keepalive_timeout=75.0)
        runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, host, port, backlog=2048)
        await site.start()
        return runner, int(runner.addresses[0][1])

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.method == "POST":
            channel = _SENDS.get(request.raw_path)
            if channel is not None:
                return await self._send(request, channel)
        return await self._other(request)

    async def _send(self, request: web.BaseRequest, channel: str) -> web.StreamResponse:
        if self._authorization and request.headers.get("Authorization") != self._authorization:
            self._gateway.refuse(channel, "unauthorized")
            return _error(401, "unauthorized", "The bearer token is missing or wrong.")
        if (request.content_length or 0) > MAX_BODY_BYTES:
            self._gateway.refuse(channel, "too large")
            return _error(413, "too_large", "The message is too large.")
        try:
            message = orjson.loads(await request.read())
            recipient, body = message["to"], message["body"]
            reference, title = message.get("reference") or "", message.get("title") or ""
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            self._gateway.refuse(channel, "invalid")
            return _error(400, "invalid", "The body must be a JSON object with `to` and `body`.")
        if not all(isinstance(text, str) for text in (recipient, body, reference, title)):
            self._gateway.refuse(channel, "invalid")
            return _error(400, "invalid", "`to`, `body`, `title` and `reference` must be strings.")
        verdict = self._gateway.take(channel, recipient, reference, title, body)
        if verdict.delay_seconds:
            await asyncio.sleep(min(verdict.delay_seconds, NEVER_SECONDS))
        return self._answer(request, verdict)

    def _answer(self, request: web.BaseRequest, verdict: Verdict) -> web.StreamResponse:
        if verdict.outcome == "accepted":
            self._ids += 1
            return web.Response(
                status=202, body=b'{"id":"sb-%d","status":"accepted"}' % self._ids, content_type=_JSON
            )
        if verdict.outcome == "dropped" or isinf(verdict.delay_seconds):
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError
        headers = {"Retry-After": str(verdict.retry_after_seconds)} if verdict.retry_after_seconds else None
        status = _ERRORS[verdict.outcome][0]
        return web.Response(
            status=status, body=_ERROR_BODIES[verdict.outcome], content_type=_JSON, headers=headers
        )

    async def _other(self, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        match method, path:
            case "GET" | "HEAD", "/outbox":
                answer = self._outbox(request)
            case "DELETE", "/outbox":
                self._gateway.clear()
                answer = web.Response(status=204)
            case "GET", "/stats":
                answer = _json(self._gateway.records.stats())
            case "GET", "/health":
                answer = _json({"status": "ok"})
            case "PUT", "/limits":
                answer = await self._put(request, self._gateway.set_limits)
            case "PUT", "/behaviour":
                answer = await self._put(request, self._gateway.set_behaviours)
            case "GET", "/":
                answer = web.Response(status=302, headers={"Location": "/outbox"})
            case _ if path in _PATHS:
                answer = _error(405, "method_not_allowed", "This address does not take that method.")
            case _:
                answer = _error(404, "not_found", "There is nothing here. The outbox is at /outbox.")
        return answer

    def _outbox(self, request: web.BaseRequest) -> web.Response:
        query = request.query
        try:
            wanted = _filter(query)
        except ValueError as error:
            return _error(400, "invalid", str(error))
        calls = self._gateway.records.newest(wanted)
        if query.get("format") == "json" or _JSON in request.headers.get("Accept", ""):
            return _json([call.as_json() for call in calls])
        page = outbox_page(list(calls), wanted, self._gateway.records.stats())
        policy = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"
        return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": policy})

    async def _put(self, request: web.BaseRequest, setter: Callable[[dict[str, Any]], None]) -> web.Response:
        try:
            wanted = orjson.loads(await request.read())
            setter(wanted if isinstance(wanted, dict) else {"": wanted})
        except ValueError as error:
            return _error(400, "invalid", str(error))
        return _json({"limits": self._gateway.limits, "behaviour": self._gateway.behaviours})


def _filter(query: Mapping[str, str]) -> Filter:
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


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type=_JSON)


def _error(status: int, code: str, message: str) -> web.Response:
    body = orjson.dumps({"error": {"code": code, "message": message, "scope": "message"}})
    return web.Response(status=status, body=body, content_type=_JSON)
