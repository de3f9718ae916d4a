"""Reading a request: its JSON, its query and its Idempotency-Key, with an answer for all that can be wrong.

orjson refuses NaN, numbers too large for a double, a byte order mark, invalid UTF-8 and a second document by
itself. What it lets through and PostgreSQL would not store, a NUL character, is looked for here.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import orjson
from flask import request
from werkzeug.exceptions import RequestEntityTooLarge

from app.api.errors import ApiError
from app.services.accept.submission import IdempotencyKey
from app.services.refusal import Problem

UUID_FORM = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_PROBLEMS_SHOWN = 20
_PAGE = 20
_PAGE_LIMIT = 100
_TEXT_LIMIT = 255
_DEPTH = 32
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")


def json_body() -> Any:
    """Return the parsed body; raise ApiError 400, 413 or 415. Every string in it can be stored."""
    if request.mimetype != "application/json":
        raise _unsupported("Send the body as Content-Type: application/json.")
    if request.mimetype_params.get("charset", "utf-8").lower() not in {"utf-8", "utf8"}:
        raise _unsupported("JSON is sent in UTF-8.")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _unsupported("Send the body without a Content-Encoding.")
    raw = request.get_data(cache=False)
    # A body in chunks is cut off at the framework's limit without a word, so that limit is one byte beyond ours.
    if len(raw) == request.max_content_length:
        raise RequestEntityTooLarge
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _unreadable(raw, error) from error
    # As many brackets as levels are allowed cannot be deeper than that; counting them costs next to nothing.
    if raw.count(b"{") + raw.count(b"[") > _DEPTH and _is_deeper(body, _DEPTH):
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_JSON", f"The body is nested more than {_DEPTH} levels deep."
        )
    if b"\\u0000" in raw:
        problems = [Problem(path, "contains a NUL character") for path, text in _texts(body) if "\0" in text]
        if problems:
            raise _text_error(problems)
    return body


def _is_deeper(body: Any, levels: int) -> bool:
    """Tell whether objects and lists are nested beyond `levels`. It does not recurse."""
    layer = [body]
    while levels > 0 and layer:
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        levels -= 1
    return bool(layer)


def _unsupported(message: str) -> ApiError:
    return ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "VALIDATION_CONTENT_TYPE", message)


def _text_error(problems: list[Problem]) -> ApiError:
    return ApiError(
        HTTPStatus.BAD_REQUEST,
        "VALIDATION_TEXT",
        "The body contains text that cannot be stored.",
        problems[:_PROBLEMS_SHOWN],
    )


def _unreadable(raw: bytes, error: orjson.JSONDecodeError) -> ApiError:
    """Return why the body was refused. The standard library reads lone surrogates, so it can name their field."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    problems = [
        Problem(path, "contains half of a surrogate pair")
        for path, text in _texts(body)
        if _LONE_SURROGATE.search(text)
    ]
    if problems:
        return _text_error(problems)
    return ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_JSON", f"The body is not valid JSON: {error.msg}.")


def _texts(body: Any) -> Iterator[tuple[str, str]]:
    """Yield every string in `body`, keys too, with its dotted path. Any depth: it does not recurse."""
    waiting = [("", body)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            for key, inner in value.items():
                below = f"{path}.{key}".lstrip(".")
                yield below, key
                waiting.append((below, inner))
        elif isinstance(value, list):
            waiting.extend((f"{path}.{index}".lstrip("."), inner) for index, inner in enumerate(value))


def no_query(allowed: Collection[str] = ()) -> None:
    """Refuse query arguments that the route does not know, or that are repeated."""
    if not request.query_string:
        return
    problems = [
        Problem(name, "is unknown" if name not in allowed else "is given twice")
        for name, values in request.args.lists()
        if name not in allowed or len(values) > 1
    ]
    if problems:
        raise _query_error(problems)


def page_query(allowed: Collection[str] = ()) -> tuple[int, str | None]:
    """Return how many entries of a list are asked for, 1 to 100, and the cursor to go on from; raise ApiError.

    `allowed` are the arguments that the list takes beside these two.
    """
    no_query({"limit", "cursor", *allowed})
    text = request.args.get("limit", str(_PAGE))
    if not re.fullmatch(r"[1-9][0-9]{0,2}", text, re.ASCII) or int(text) > _PAGE_LIMIT:
        raise _query_error([Problem("limit", f"must be 1 to {_PAGE_LIMIT}")])
    return int(text), request.args.get("cursor")


def text_argument(name: str) -> str | None:
    """Return an argument of the query, 1 to 255 characters that can be stored; raise ApiError."""
    text = request.args.get(name)
    if text is not None and (not 0 < len(text) <= _TEXT_LIMIT or not text.isprintable()):
        raise _query_error([Problem(name, f"must be 1 to {_TEXT_LIMIT} visible characters")])
    return text


def instant_argument(name: str) -> datetime | None:
    """Return an argument of the query that is an instant with an offset; raise ApiError."""
    text = request.args.get(name)
    if text is None:
        return None
    # A plus sign that was not escaped arrives as a space.
    found = read_instant(text.replace(" ", "+"))
    if found is None:
        raise _query_error([Problem(name, "must be RFC 3339 with an offset, such as 2026-07-01T09:00:00Z")])
    return found


def read_instant(text: str) -> datetime | None:
    """Return an RFC 3339 instant in UTC, or None. What a local time means is not for us to guess."""
    if _RFC_3339.fullmatch(text):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    return None


def _query_error(problems: list[Problem]) -> ApiError:
    return ApiError(
        HTTPStatus.BAD_REQUEST,
        "VALIDATION_QUERY",
        "The query cannot be understood.",
        problems[:_PROBLEMS_SHOWN],
    )


def idempotency_key(route: str, body: Any) -> IdempotencyKey:
    """Return the request's key with its scope and a digest of its validated body; raise ApiError 400.

    The digest is over the body as it was parsed, keys sorted: white space and the order of keys do not matter, and
    neither does a later version of our own defaults.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_IDEMPOTENCY_KEY_MISSING", "Send an Idempotency-Key header."
        )
    if not _KEY.fullmatch(key):
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "VALIDATION_IDEMPOTENCY_KEY",
            "An Idempotency-Key is 1 to 255 visible ASCII characters.",
        )
    digest = hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).digest()
    return IdempotencyKey(route, key, digest)
