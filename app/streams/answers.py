"""Everything that this process answers besides a stream: errors in the one shape, health, and CORS headers."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from app.db.requests import DatabaseBusyError, DatabaseDownError
from app.domain.error_shape import error_document, trace_id_of
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.refusal import Forbidden, Problem, Refused, Unauthenticated, Unavailable
from app.streams.hub import CrowdedError, FullError

CROSS_ORIGIN = web.RequestKey("cross_origin", dict[str, str])
"""The headers that let the page of another origin read the answer."""

_JSON = "application/json"
_FULL_SECONDS = 5
_CROWDED_SECONDS = 60
_PREFLIGHT_SECONDS = 600
_HTTP_CODES = {
    HTTPStatus.NOT_FOUND: "VALIDATION_ROUTE_UNKNOWN",
    HTTPStatus.METHOD_NOT_ALLOWED: "VALIDATION_METHOD_NOT_ALLOWED",
}
_log = get_logger(__name__)


class QueryError(Exception):
    """The query of a request cannot be understood."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__("query")
        self.problems = tuple(problems)


def ok() -> web.Response:
    """Return the answer of a health check that is well."""
    return web.Response(body=b'{"status":"ok"}', content_type=_JSON)


def error(
    request: web.BaseRequest,
    status: HTTPStatus,
    code: str,
    message: str,
    *,
    problems: Iterable[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return an error answer."""
    metrics.STREAMS_REFUSED.labels(status).inc()
    trace_id = trace_id_of(request.headers.get("traceparent", ""))
    document = error_document(code, message, trace_id, ((each.field, each.message) for each in problems))
    return web.Response(
        body=orjson.dumps(document), status=status, headers={"Cache-Control": "no-store", **(headers or {})},
        content_type=_JSON,
    )  # fmt: skip


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what a view raised in the one shape."""
    try:
        return await handler(request)
    except web.HTTPException as problem:
        status = HTTPStatus(problem.status)
        code = _HTTP_CODES.get(status, "VALIDATION_REQUEST")
        allowed = {name: value for name, value in problem.headers.items() if name == "Allow"}
        return error(request, status, code, status.description or status.phrase, headers=allowed)
    except (Unauthenticated, Refused, QueryError, FullError, CrowdedError) as problem:
        return _refusal(request, problem)
    except (Unavailable, DatabaseBusyError, DatabaseDownError) as problem:
        return _not_now(request, problem)
    except Exception as problem:  # noqa: BLE001  whatever it is, the client gets the one shape
        _log.exception("stream_request_failed", error=type(problem).__name__)
        return error(
            request, HTTPStatus.INTERNAL_SERVER_ERROR, "INFRA_INTERNAL",
            "Something went wrong on our side; it was logged.",
        )  # fmt: skip


def _refusal(request: web.Request, problem: Exception) -> web.Response:
    match problem:
        case Unauthenticated():
            proof = {"WWW-Authenticate": "Bearer"}
            return error(request, HTTPStatus.UNAUTHORIZED, problem.code, problem.message, headers=proof)
        case Forbidden():
            return error(request, HTTPStatus.FORBIDDEN, problem.code, problem.message)
        case Refused():
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            return error(request, status, problem.code, problem.message, problems=problem.problems)
        case QueryError():
            return error(
                request, HTTPStatus.BAD_REQUEST, "VALIDATION_QUERY", "The query cannot be understood.",
                problems=problem.problems,
            )  # fmt: skip
        case CrowdedError():
            return error(
                request, HTTPStatus.TOO_MANY_REQUESTS, "DOMAIN_STREAMS_TOO_MANY",
                "This user has as many streams as one may have; close one.",
                headers={"Retry-After": str(_CROWDED_SECONDS)},
            )  # fmt: skip
        case _:
            return error(
                request, HTTPStatus.SERVICE_UNAVAILABLE, "INFRA_STREAMS_FULL",
                "This process serves as many streams as it may.", headers={"Retry-After": str(_FULL_SECONDS)},
            )  # fmt: skip


def _not_now(request: web.Request, problem: Exception) -> web.Response:
    match problem:
        case Unavailable():
            code, message, seconds = problem.code, problem.message, problem.retry_after_seconds
        case DatabaseBusyError():
            code, message, seconds = "INFRA_DATABASE_BUSY", "All database connections are in use.", 1
        case _:
            code, message, seconds = "INFRA_DATABASE_UNAVAILABLE", "The database does not answer.", 5
    _log.info("stream_not_opened", code=code)
    return error(request, HTTPStatus.SERVICE_UNAVAILABLE, code, message, headers={"Retry-After": str(seconds)})


def cross_origin(allowed: str) -> Middleware:
    """Return what lets pages of the allowed origins read the answers; the setting's text is comma-separated.

    No cookie proves anything here, so an origin that is let in can do no more than what it has a ticket for.
    """
    origins = {each.strip().rstrip("/") for each in allowed.split(",") if each.strip()}

    def headers_for(request: web.Request) -> dict[str, str]:
        origin = request.headers.get("Origin")
        if not origins:
            return {}
        if origin is None or not origins & {origin, "*"}:
            return {"Vary": "Origin"}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": "Retry-After",
            "Vary": "Origin",
        }

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = headers_for(request)
        asks_before = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if asks_before and "Access-Control-Allow-Origin" in given:
            return web.Response(
                status=HTTPStatus.NO_CONTENT,
                headers=given
                | {
                    "Access-Control-Allow-Methods": "GET",
                    "Access-Control-Allow-Headers": "Authorization, Cache-Control, Last-Event-ID",
                    "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
                },
            )
        request[CROSS_ORIGIN] = given
        response = await handler(request)
        if not response.prepared:
            response.headers.update(given)
        return response

    return middleware
