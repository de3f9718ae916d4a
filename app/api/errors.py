"""Errors: one shape for every answer that is not a success, whoever raised what.

`{"error": {"code", "message", "details", "timestamp", "trace_id"}}`. A code is stable and says by its first word
whose matter it is: VALIDATION_ and AUTH_ the caller's, DOMAIN_ a well-formed request that cannot be done, INFRA_
ours.
Messages never repeat an address or content.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson
from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from app.db.requests import DatabaseBusyError, DatabaseDownError
from app.domain.error_shape import error_document, trace_id_of
from app.observability.logging import get_logger
from app.services.refusal import Forbidden, NotFound, Problem, Refused, Unauthenticated, Unavailable

JSON = "application/json"
_RETRY_BUSY_SECONDS = 1
_RETRY_DOWN_SECONDS = 5

_HTTP_CODES = {
    HTTPStatus.BAD_REQUEST: "VALIDATION_REQUEST",
    HTTPStatus.NOT_FOUND: "VALIDATION_ROUTE_UNKNOWN",
    HTTPStatus.METHOD_NOT_ALLOWED: "VALIDATION_METHOD_NOT_ALLOWED",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "VALIDATION_BODY_TOO_LARGE",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "VALIDATION_CONTENT_TYPE",
}

_log = get_logger(__name__)


class ApiError(Exception):
    """An answer that a view decided on by itself."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        problems: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.problems = problems
        self.headers = headers or {}


def trace_id() -> str:
    """Return the trace of this request: the caller's from `traceparent`, or a fresh one."""
    if "trace_id" not in g:
        g.trace_id = trace_id_of(request.headers.get("traceparent", ""))
    return str(g.trace_id)


def answer(
    status: HTTPStatus,
    code: str,
    message: str,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an error response in the one shape."""
    document = error_document(code, message, trace_id(), ((each.field, each.message) for each in problems))
    return Response(orjson.dumps(document), status, headers, mimetype=JSON)


def register(app: Flask) -> None:
    """Answer every exception of a request in the one shape."""
    app.register_error_handler(ApiError, _api_error)
    app.register_error_handler(Refused, _refused)
    app.register_error_handler(Unauthenticated, _unauthenticated)
    app.register_error_handler(Unavailable, _unavailable)
    app.register_error_handler(DatabaseBusyError, _busy)
    app.register_error_handler(DatabaseDownError, _down)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unexpected)


def _api_error(error: ApiError) -> Response:
    return answer(error.status, error.code, error.message, error.problems, error.headers)


def _refused(error: Refused) -> Response:
    match error:
        case NotFound():
            status = HTTPStatus.NOT_FOUND
        case Forbidden():
            status = HTTPStatus.FORBIDDEN
        case _:
            status = HTTPStatus.UNPROCESSABLE_ENTITY
    return answer(status, error.code, error.message, error.problems)


def _unauthenticated(error: Unauthenticated) -> Response:
    return answer(HTTPStatus.UNAUTHORIZED, error.code, error.message, headers={"WWW-Authenticate": "Bearer"})


def _unavailable(error: Unavailable) -> Response:
    _log.info("request_not_served", trace_id=trace_id(), code=error.code)
    return answer(
        HTTPStatus.SERVICE_UNAVAILABLE,
        error.code,
        error.message,
        headers={"Retry-After": str(error.retry_after_seconds)},
    )


def _busy(_error: DatabaseBusyError) -> Response:
    _log.info("request_shed", trace_id=trace_id())
    return answer(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "INFRA_DATABASE_BUSY",
        "All database connections are in use. Nothing was done; repeat the request.",
        headers={"Retry-After": str(_RETRY_BUSY_SECONDS)},
    )


def _down(error: DatabaseDownError) -> Response:
    _log.warning("database_unavailable", trace_id=trace_id(), error=type(error.__cause__).__name__)
    return answer(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "INFRA_DATABASE_UNAVAILABLE",
        "The database does not answer. Repeat the request, with the same Idempotency-Key.",
        headers={"Retry-After": str(_RETRY_DOWN_SECONDS)},
    )


def _http(error: HTTPException) -> Response:
    status = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
    headers = {}
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        headers["Allow"] = ", ".join(sorted(error.valid_methods))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _unexpected(error)
    return answer(
        status, _HTTP_CODES.get(status, "VALIDATION_REQUEST"), status.description or status.phrase, headers=headers
    )


def _unexpected(error: Exception) -> Response:
    _log.error("request_failed", trace_id=trace_id(), error=type(error).__name__, exc_info=error)
    return answer(
        HTTPStatus.INTERNAL_SERVER_ERROR, "INFRA_INTERNAL", "Something went wrong on our side; it was logged."
    )
