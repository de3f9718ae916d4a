"""`/v1/suppressions`: addresses that nothing is sent to, and why."""

from http import HTTPStatus
from typing import Any, cast
from uuid import UUID

import orjson
from flask import Response, request
from flask_smorest import Blueprint

from app.api.auth import requires
from app.api.body import UUID_FORM, json_body, no_query, page_query
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import BODY_ERRORS, PAGE_QUERY, USUAL_ERRORS, Query, operation, route
from app.api.preference_schemas import SuppressionList, SuppressionRequest, SuppressionView
from app.api.schemas import validate
from app.domain.callers import Caller
from app.domain.kinds import Channel
from app.services.refusal import Problem
from app.services.suppressions import Look, Reason, not_found

READ = "suppressions:read"
WRITE = "suppressions:write"
_CHANNELS = ("PUSH", "EMAIL", "SMS")

blueprint = Blueprint("suppressions", __name__, url_prefix="/v1", description="Addresses that nothing is sent to")


@route(
    blueprint,
    "GET",
    "/suppressions",
    operation(
        "List suppressed addresses",
        {HTTPStatus.OK: ("Newest first.", SuppressionList)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, *USUAL_ERRORS),
        query=(
            *PAGE_QUERY,
            Query("channel", "Those of one channel.", {"type": "string", "enum": list(_CHANNELS)}),
            Query("reason", "Those with one reason.", {"type": "string", "enum": [*Reason]}),
            Query("address", "The entry of one address; needs `channel`.", {"type": "string", "maxLength": 4096}),
        ),
    ),
)
@requires(READ)
def list_suppressions(caller: Caller) -> Response:
    """Addresses are masked unless the caller has `recipients:read`."""
    limit, cursor = page_query(("channel", "reason", "address"))
    try:
        page = services().suppressions.page(caller, _look(), limit, cursor)
    except ValueError as error:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list."
        ) from error
    return _json({"data": page.shown, "next_cursor": page.next_cursor})


@route(
    blueprint,
    "POST",
    "/suppressions",
    operation(
        "Suppress an address",
        {HTTPStatus.CREATED: ("How it stands on the list.", SuppressionView)},
        scope=WRITE,
        body=SuppressionRequest,
        errors=(*BODY_ERRORS, *USUAL_ERRORS),
    ),
)
@requires(WRITE)
def add_suppression(caller: Caller) -> Response:
    """Nothing is sent to it from now on, whoever it belongs to; again is harmless.

    Of two reasons the weightier one stays: COMPLAINT, OPT_OUT, MANUAL, BOUNCE.
    """
    no_query()
    asked = validate(SuppressionRequest, json_body())
    added = services().suppressions.add(
        caller, Channel(asked.channel), asked.address, Reason(asked.reason), asked.note
    )
    return _json(added, HTTPStatus.CREATED)


@route(
    blueprint,
    "DELETE",
    "/suppressions/<identifier>",
    operation(
        "Take an address off the list",
        {HTTPStatus.NO_CONTENT: ("Messages go to it again.", None)},
        scope=WRITE,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *USUAL_ERRORS),
    ),
)
@requires(WRITE)
def remove_suppression(identifier: str, caller: Caller) -> Response:
    """What was suppressed meanwhile is not sent after all."""
    no_query()
    if not UUID_FORM.fullmatch(identifier):
        raise not_found()
    services().suppressions.remove(caller, str(UUID(identifier)))
    return Response(status=HTTPStatus.NO_CONTENT)


def _look() -> Look:
    channel, reason, address = (request.args.get(name) for name in ("channel", "reason", "address"))
    problems = []
    if channel is not None and channel not in _CHANNELS:
        problems.append(Problem("channel", f"must be one of {', '.join(_CHANNELS)}"))
    if reason is not None and reason not in set(Reason):
        problems.append(Problem("reason", f"must be one of {', '.join(Reason)}"))
    if address is not None and channel is None:
        problems.append(Problem("address", "needs channel"))
    if problems:
        raise ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_QUERY", "The query cannot be understood.", problems)
    return Look(cast("Channel | None", channel and Channel(channel)), reason and Reason(reason), address)  # type: ignore[arg-type]


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(value), status, mimetype=JSON)
