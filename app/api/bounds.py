"""How large a request may be before anything of it is looked at, on every route alike.

The server's own bounds are far above these: without a limit here, what a client sends in its headers or its
query is parsed, compared and copied as it comes. Bodies that come in chunks announce no length;
`body.json_body` cuts them.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from flask import Flask, current_app, request
from werkzeug.exceptions import RequestEntityTooLarge

from app.api.errors import ApiError

View = TypeVar("View", bound=Callable[..., Any])

_LARGER = "larger_body"
TARGET_LIMIT_BYTES = 8192
HEADERS_LIMIT_BYTES = 32_768


def larger_body(setting: str) -> Callable[[View], View]:
    """Say of a view that its bodies have a limit of their own: the bytes in the application's config `setting`."""

    def decorate(view: View) -> View:
        setattr(view, _LARGER, setting)
        return view

    return decorate


def register(app: Flask) -> None:
    """Refuse what is too large before a view is called, and before anybody signs in."""
    app.before_request(_refuse_oversized)


def _refuse_oversized() -> None:
    environ = request.environ
    if len(environ.get("PATH_INFO", "")) + len(environ.get("QUERY_STRING", "")) > TARGET_LIMIT_BYTES:
        raise ApiError(
            HTTPStatus.REQUEST_URI_TOO_LONG,
            "VALIDATION_TARGET_TOO_LONG",
            f"Path and query have {TARGET_LIMIT_BYTES} bytes at most.",
        )
    if sum(len(value) for name, value in environ.items() if name.startswith("HTTP_")) > HEADERS_LIMIT_BYTES:
        raise ApiError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "VALIDATION_HEADERS_TOO_LARGE",
            f"Headers have {HEADERS_LIMIT_BYTES} bytes at most.",
        )
    larger = getattr(current_app.view_functions.get(request.endpoint or ""), _LARGER, None)
    if larger is not None:
        request.max_content_length = current_app.config[larger] + 1
    limit = request.max_content_length
    if limit is not None and (request.content_length or 0) >= limit:
        raise RequestEntityTooLarge
