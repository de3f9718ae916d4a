"""`/v1/users` and `/v1/erasures`: who is notified, where they are reached, and how they are forgotten."""

from http import HTTPStatus
from typing import Any

import orjson
from flask import Response, request
from flask_smorest import Blueprint

from app.api.auth import requires
from app.api.body import UUID_FORM, json_body, no_query, page_query
from app.api.bounds import larger_body
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import Query, operation, route
from app.api.schemas import validate
from app.api.user_schemas import (
    BulkAnswer,
    ErasureView,
    UserFields,
    UserList,
    UsersBulk,
    UserView,
    id_problem,
    parse_row,
    reason,
)
from app.domain.callers import Caller
from app.services.recipients import InvalidRecipientError, email_address, phone_number
from app.services.refusal import NotFound, Problem, Refused
from app.services.user_changes import UserChange

READ = "users:read"
WRITE = "users:write"
BULK_LIMIT_BYTES = "BULK_MAX_CONTENT_LENGTH"
"""The key in the application's configuration."""

blueprint = Blueprint("users", __name__, url_prefix="/v1", description="Users and their addresses")

_STATUSES = ("ACTIVE", "INACTIVE", "SUSPENDED")
_USUAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)
_BODY = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_LIMIT = Query("limit", "Users on a page, 20 unless asked.", {"type": "integer", "minimum": 1, "maximum": 100})


@route(
    blueprint,
    "PUT",
    "/users/<identifier>",
    operation(
        "Create or replace a user",
        {HTTPStatus.OK: ("Replaced.", UserView), HTTPStatus.CREATED: ("Created.", UserView)},
        scope=WRITE,
        body=UserFields,
        errors=(*_BODY, *_USUAL),
    ),
)
@requires(WRITE)
def put_user(identifier: str, caller: Caller) -> Response:
    """What is left out is cleared. Devices stay as they are."""
    no_query()
    change = validate(UserFields, json_body()).change(user_id(identifier), replaces=True)
    written = services().users.write(caller, change, creates=True)
    return _json(written.user, HTTPStatus.CREATED if written.is_new else HTTPStatus.OK)


@route(
    blueprint,
    "PATCH",
    "/users/<identifier>",
    operation(
        "Change a user",
        {HTTPStatus.OK: ("Changed.", UserView)},
        scope=WRITE,
        body=UserFields,
        errors=(*_BODY, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(WRITE, users=True)
def patch_user(identifier: str, caller: Caller) -> Response:
    """What is left out stays, `null` clears, attributes are merged by their names.

    A person changes `locale` and `time_zone` of their own record only.
    """
    no_query()
    change = validate(UserFields, json_body()).change(user_id(identifier))
    return _json(services().users.write(caller, change, creates=False).user)


@route(
    blueprint,
    "GET",
    "/users/<identifier>",
    operation(
        "Read a user",
        {HTTPStatus.OK: ("As it stands now.", UserView)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(READ, users=True)
def read_user(identifier: str, caller: Caller) -> Response:
    """Addresses are masked unless the caller is the user or has `recipients:read`."""
    no_query()
    return _json(services().users.read(caller, user_id(identifier)))


@route(
    blueprint,
    "GET",
    "/users",
    operation(
        "List users",
        {HTTPStatus.OK: ("In the order of their ids.", UserList)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *_USUAL),
        query=(
            _LIMIT,
            Query("cursor", "`next_cursor` of the page before.", {"type": "string"}),
            Query("status", "Only those.", {"type": "string", "enum": list(_STATUSES)}),
            Query("email", "Only those with this e-mail address.", {"type": "string"}),
            Query("phone", "Only those with this number, in E.164.", {"type": "string"}),
        ),
    ),
)
@requires(READ)
def list_users(caller: Caller) -> Response:
    """Several users may have the same address."""
    asked = _asked()
    limit, cursor = page_query(frozenset({"status", "email", "phone"}))
    try:
        page = services().users.page(caller, asked, limit, cursor)
    except ValueError as error:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list."
        ) from error
    return _json({"data": page.rows, "next_cursor": page.next_cursor})


@route(
    blueprint,
    "POST",
    "/users/bulk",
    operation(
        "Create or change many users",
        {HTTPStatus.OK: ("What became of each.", BulkAnswer)},
        scope=WRITE,
        body=UsersBulk,
        errors=(*_BODY, *_USUAL),
    ),
)
@larger_body(BULK_LIMIT_BYTES)
@requires(WRITE)
def bulk_users(caller: Caller) -> Response:
    """Each row is a user with its `id`. What it leaves out stays, as with PATCH.

    A row that cannot be stored is `rejected` with its reason, and the others are stored.
    """
    no_query()
    rows = validate(UsersBulk, json_body()).users
    changes, results = _parse(rows)
    outcomes = services().users.write_many(caller, list(changes.values()))
    for index, change in changes.items():
        results[index] = _outcome(index, change.id, outcomes[change.id])
    listed = [results[index] for index in range(len(rows))]
    counts = {
        status: sum(row["status"] == status for row in listed) for status in ("created", "updated", "rejected")
    }
    return _json(counts | {"results": listed})


@route(
    blueprint,
    "DELETE",
    "/users/<identifier>",
    operation(
        "Erase a user",
        {HTTPStatus.ACCEPTED: ("The record is gone; the rest is being erased.", ErasureView)},
        scope=WRITE,
        errors=(HTTPStatus.BAD_REQUEST, *_USUAL),
    ),
)
@requires(WRITE)
def erase_user(identifier: str, caller: Caller) -> Response:
    """Also what was sent to the user is erased, in the background; what was not sent yet is cancelled.

    A user without a record is erased too.
    """
    no_query()
    return _json(services().erasures.begin(caller, user_id(identifier)), HTTPStatus.ACCEPTED)


@route(
    blueprint,
    "GET",
    "/erasures/<identifier>",
    operation(
        "Read an erasure",
        {HTTPStatus.OK: ("As it stands now.", ErasureView)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(READ)
def read_erasure(identifier: str, caller: Caller) -> Response:
    """It is DONE when nothing personal of the user is left."""
    no_query()
    if not UUID_FORM.fullmatch(identifier):
        raise NotFound("DOMAIN_ERASURE_NOT_FOUND", "There is no such erasure.")
    return _json(services().erasures.read(caller, identifier))


def user_id(text: str) -> str:
    """Return the id of a user from a path; raise ApiError 400 for one that no user can have."""
    if (problem := id_problem(text)) is not None:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_USER_ID", "This is no id of a user.", [Problem("id", problem)]
        )
    return text


def _asked() -> dict[str, str]:
    """Return what narrows the list, addresses in their stored form; raise ApiError 400."""
    asked, problems = {}, []
    if (status := request.args.get("status")) is not None:
        asked["status"] = status
        if status not in _STATUSES:
            problems.append(Problem("status", f"must be one of {', '.join(_STATUSES)}"))
    # A plus sign that nobody encoded arrives as a space.
    given = {"email": request.args.get("email"), "phone": request.args.get("phone")}
    for name, normalise in (("email", email_address), ("phone", phone_number)):
        if (text := given[name]) is None:
            continue
        try:
            asked[name] = normalise(f"+{text[1:]}" if name == "phone" and text[:1] == " " else text)
        except InvalidRecipientError as error:
            problems.append(Problem(name, str(error)))
    if None not in given.values():
        problems.append(Problem("phone", "is given beside email"))
    if problems:
        raise ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_QUERY", "The query cannot be understood.", problems)
    return asked


def _parse(rows: list[Any]) -> tuple[dict[int, UserChange], dict[int, dict[str, Any]]]:
    """Return the changes by their index, and the answers for the rows that are none."""
    changes: dict[int, UserChange] = {}
    results: dict[int, dict[str, Any]] = {}
    seen: set[str] = set()
    for index, row in enumerate(rows):
        named = row.get("id") if isinstance(row, dict) else None
        shown = named if isinstance(named, str) else None
        try:
            change = parse_row(row)
        except (ApiError, Refused) as error:
            results[index] = _rejected(index, shown, reason(error))
            continue
        if change.id in seen:
            results[index] = _rejected(index, shown, reason(_repeated()))
            continue
        seen.add(change.id)
        changes[index] = change
    return changes, results


def _repeated() -> Refused:
    problem = Problem("id", "is in this body before; send the second one after it")
    return Refused("DOMAIN_USER_REPEATED", "The user is in the body twice.", [problem])


def _outcome(index: int, identifier: str, outcome: str) -> dict[str, Any]:
    if outcome == "too large":
        why = {
            "code": "DOMAIN_ATTRIBUTES_TOO_LARGE",
            "message": "The attributes would be too large.",
            "details": [],
        }
        return _rejected(index, identifier, why)
    return {"index": index, "id": identifier, "status": outcome, "error": None}


def _rejected(index: int, identifier: str | None, why: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "id": identifier, "status": "rejected", "error": why}


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(value), status, mimetype=JSON)
