"""`/v1/notifications/batch`: one message to many people, and what became of it."""

import re
from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from flask import Response, current_app, request
from flask_smorest import Blueprint
from werkzeug.exceptions import RequestEntityTooLarge

from app.api.auth import requires
from app.api.batch_schemas import BatchAccepted, BatchList, BatchRequest, BatchView, PieceStored
from app.api.body import UUID_FORM, idempotency_key, json_body, no_query, page_query
from app.api.bounds import larger_body
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import Query, operation, route
from app.api.schemas import validate
from app.domain.callers import Caller
from app.services.batches.manage import not_found, view
from app.services.batches.reports import STATES, Lines
from app.services.refusal import Problem

READ = "notifications:read"
WRITE = "notifications:write"
BODY_LIMIT = "BATCH_MAX_BODY_BYTES"
PIECE_LIMIT = "BATCH_PIECE_MAX_BYTES"

blueprint = Blueprint(
    "batches", __name__, url_prefix="/v1/notifications/batch", description="One message to many people"
)

_ROUTE = "POST /v1/notifications/batch"
_REPLAYED = {"Idempotency-Replayed": "true"}
_USUAL = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)
_ONE = (*_USUAL, HTTPStatus.NOT_FOUND)
_SENT = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, HTTPStatus.UNPROCESSABLE_ENTITY)
_NDJSON = "application/x-ndjson"
_CSV = "text/csv"
_LIST_TYPES = (_CSV, _NDJSON, "application/octet-stream")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)
_LINES = 1000
_LINES_LIMIT = 10_000
_ERROR_COLUMNS = ("row", "user_id", "code", "message")
_PAGE_OF_LINES = (
    Query(
        "limit",
        f"Lines on a page, {_LINES} unless asked.",
        {"type": "integer", "minimum": 1, "maximum": _LINES_LIMIT},
    ),
    Query("cursor", "The `Next-Cursor` header of the page before.", {"type": "string"}),
)


def _as_lines(described: dict[str, Any], *types: str) -> dict[str, Any]:
    """Say of an operation that it answers with lines, and where the next ones are."""
    described["responses"]["200"] |= {
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in types},
        "headers": {"Next-Cursor": {"description": "There where more may follow.", "schema": {"type": "string"}}},
    }
    return described


def _with_list(described: dict[str, Any]) -> dict[str, Any]:
    """Say of an operation that it takes a piece of a list."""
    kinds = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _LIST_TYPES}
    described["requestBody"] = {"required": True, "content": kinds}
    return described


@route(
    blueprint,
    "POST",
    "",
    operation(
        "Accept a batch",
        {HTTPStatus.ACCEPTED: ("Stored; it will be expanded in the background.", BatchAccepted)},
        scope=WRITE,
        body=BatchRequest,
        errors=(*_USUAL, *_SENT),
        headers=[("Idempotency-Key", "1 to 255 visible ASCII characters; the same key makes one batch.")],
    ),
)
@larger_body(BODY_LIMIT)
@requires(WRITE)
def accept_batch(caller: Caller) -> Response:
    """To up to 10,000 people listed here, to a segment of the users, or to a list that is uploaded afterwards."""
    no_query()
    body = json_body()
    key = idempotency_key(_ROUTE, body)
    answer = services().batches.accept(caller, validate(BatchRequest, body).submission(), key)
    headers = _REPLAYED if answer.is_replay else None
    return Response(answer.text, HTTPStatus.ACCEPTED, headers, mimetype=JSON)


@route(
    blueprint,
    "GET",
    "",
    operation(
        "List batches",
        {HTTPStatus.OK: ("Newest first.", BatchList)},
        scope=READ,
        errors=_USUAL,
        query=(
            Query(
                "limit", "Batches on a page, 20 unless asked.", {"type": "integer", "minimum": 1, "maximum": 100}
            ),
            Query("cursor", "`next_cursor` of the page before.", {"type": "string"}),
        ),
    ),
)
@requires(READ)
def list_batches(caller: Caller) -> Response:
    """Those that have ended too, for as long as they are kept."""
    limit, cursor = page_query()
    try:
        page = services().batches.manage.page(caller, limit, cursor)
    except ValueError as error:
        raise _bad_cursor() from error
    return _json({"data": [view(row) for row in page.rows], "next_cursor": page.next_cursor})


@route(
    blueprint,
    "GET",
    "/<identifier>",
    operation("Read a batch", {HTTPStatus.OK: ("As it stands now.", BatchView)}, scope=READ, errors=_ONE),
)
@requires(READ)
def read_batch(identifier: str, caller: Caller) -> Response:
    """Progress comes from sums that are kept a chunk, so looking costs the same for ten people and a million."""
    no_query()
    return _json(view(services().batches.manage.read(caller, _id(identifier))))


@route(
    blueprint,
    "PUT",
    "/<identifier>/rows",
    _with_list(
        operation(
            "Upload a piece of a list",
            {HTTPStatus.OK: ("Stored, now or before.", PieceStored)},
            scope=WRITE,
            errors=(*_ONE, *_SENT),
            query=(Query("offset", "Where the piece begins, in bytes; 0 if absent.", {"type": "integer"}),),
        )
    ),
)
@larger_body(PIECE_LIMIT)
@requires(WRITE)
def upload_rows(identifier: str, caller: Caller) -> Response:
    """A piece may end anywhere. One that is sent again changes nothing; `next_offset` is where to go on."""
    no_query({"offset"})
    text = request.args.get("offset", "0")
    if not _NUMBER.fullmatch(text):
        raise _query_error("offset", "must be a number of bytes")
    data = _piece(current_app.config[PIECE_LIMIT])
    return _json({"next_offset": services().batches.upload.append(caller, _id(identifier), int(text), data)})


@route(
    blueprint,
    "POST",
    "/<identifier>/start",
    operation(
        "Start an uploaded batch",
        {HTTPStatus.OK: ("Its list is complete.", BatchView)},
        scope=WRITE,
        errors=(*_ONE, HTTPStatus.UNPROCESSABLE_ENTITY),
    ),
)
@requires(WRITE)
def start_batch(identifier: str, caller: Caller) -> Response:
    """Again is harmless."""
    no_query()
    services().batches.upload.start(caller, _id(identifier))
    return _json(view(services().batches.manage.read(caller, _id(identifier))))


def _change(summary: str, text: str) -> dict[str, Any]:
    return operation(
        summary,
        {HTTPStatus.OK: (text, BatchView)},
        scope=WRITE,
        errors=(*_ONE, HTTPStatus.UNPROCESSABLE_ENTITY),
    )


@route(blueprint, "POST", "/<identifier>/pause", _change("Pause a batch", "Makes no more notifications."))
@requires(WRITE)
def pause_batch(identifier: str, caller: Caller) -> Response:
    """What it has made already is sent all the same."""
    no_query()
    return _json(view(services().batches.manage.pause(caller, _id(identifier))))


@route(blueprint, "POST", "/<identifier>/resume", _change("Resume a batch", "Goes on."))
@requires(WRITE)
def resume_batch(identifier: str, caller: Caller) -> Response:
    """One that its canary has stopped goes on without it."""
    no_query()
    return _json(view(services().batches.manage.resume(caller, _id(identifier))))


@route(blueprint, "POST", "/<identifier>/cancel", _change("Cancel a batch", "It makes and sends no more."))
@requires(WRITE)
def cancel_batch(identifier: str, caller: Caller) -> Response:
    """What is being sent may still arrive. The rest is CANCELLED, chunk by chunk."""
    no_query()
    return _json(view(services().batches.manage.cancel(caller, _id(identifier))))


@route(blueprint, "POST", "/<identifier>/recall", _change("Recall a batch", "What was not sent is not sent."))
@requires(WRITE)
def recall_batch(identifier: str, caller: Caller) -> Response:
    """Cancel for a batch that may have ended. Who got it is in `…/recipients?state=sent`."""
    no_query()
    return _json(view(services().batches.manage.recall(caller, _id(identifier))))


@route(
    blueprint,
    "GET",
    "/<identifier>/errors",
    _as_lines(
        operation(
            "List rejected rows",
            {HTTPStatus.OK: ("A row of the list a line, with its number and why it made no notification.", None)},
            scope=READ,
            errors=_ONE,
            query=(
                *_PAGE_OF_LINES,
                Query("format", "`ndjson` unless asked.", {"type": "string", "enum": ["ndjson", "csv"]}),
            ),
        ),
        _NDJSON,
        _CSV,
    ),
)
@requires(READ)
def list_errors(identifier: str, caller: Caller) -> Response:
    """In CSV no cell is a formula: one that would be gets an apostrophe in front."""
    limit, cursor = _lines_query({"format"})
    form = request.args.get("format", "ndjson")
    if form not in {"ndjson", "csv"}:
        raise _query_error("format", "must be ndjson or csv")
    try:
        lines = services().batches.reports.errors(caller, _id(identifier), limit, cursor)
    except ValueError as error:
        raise _bad_cursor() from error
    if form == "csv":
        return _lines_answer(lines, lines.csv(_ERROR_COLUMNS, with_header=cursor is None), _CSV)
    return _lines_answer(lines, lines.ndjson(), _NDJSON)


@route(
    blueprint,
    "GET",
    "/<identifier>/recipients",
    _as_lines(
        operation(
            "List who got it and who did not",
            {HTTPStatus.OK: ("A delivery a line; of `suppressed` a notification. A page may be short.", None)},
            scope=READ,
            errors=_ONE,
            query=(
                *_PAGE_OF_LINES,
                Query("state", "`sent` unless asked.", {"type": "string", "enum": list(STATES)}),
            ),
        ),
        _NDJSON,
    ),
)
@requires(READ)
def list_recipients(identifier: str, caller: Caller) -> Response:
    """By user, without addresses."""
    limit, cursor = _lines_query({"state"})
    state = request.args.get("state", "sent")
    if state not in STATES:
        raise _query_error("state", f"must be one of {', '.join(STATES)}")
    try:
        lines = services().batches.reports.recipients(caller, _id(identifier), state, limit, cursor)
    except ValueError as error:
        raise _bad_cursor() from error
    return _lines_answer(lines, lines.ndjson(), _NDJSON)


def _piece(limit: int) -> bytes:
    if request.mimetype not in _LIST_TYPES or request.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "VALIDATION_CONTENT_TYPE",
            f"Send a piece as it is, as {', '.join(_LIST_TYPES)}.",
        )
    data = request.get_data(cache=False)
    if len(data) > limit:
        raise RequestEntityTooLarge
    if not data:
        raise ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_BODY", "A piece has at least one byte.")
    return data


def _lines_query(more: set[str]) -> tuple[int, str | None]:
    no_query({"limit", "cursor", *more})
    text = request.args.get("limit", str(_LINES))
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= _LINES_LIMIT:
        raise _query_error("limit", f"must be 1 to {_LINES_LIMIT}")
    return int(text), request.args.get("cursor")


def _query_error(name: str, message: str) -> ApiError:
    return ApiError(
        HTTPStatus.BAD_REQUEST, "VALIDATION_QUERY", "The query cannot be understood.", [Problem(name, message)]
    )


def _bad_cursor() -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list.")


def _id(text: str) -> str:
    if not UUID_FORM.fullmatch(text):
        raise not_found()
    return str(UUID(text))


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), mimetype=JSON)


def _lines_answer(lines: Lines, body: bytes, mimetype: str) -> Response:
    headers = {} if lines.next_cursor is None else {"Next-Cursor": lines.next_cursor}
    return Response(body, HTTPStatus.OK, headers, mimetype=mimetype)
