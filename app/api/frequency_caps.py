"""`/v1/frequency-caps`: how much a person gets of a category."""

from http import HTTPStatus
from typing import Any

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api.auth import requires
from app.api.body import json_body, no_query
from app.api.context import services
from app.api.control_schemas import FrequencyCapList, FrequencyCapRequest, FrequencyCapView
from app.api.errors import JSON
from app.api.openapi import operation, route
from app.api.schemas import validate
from app.domain.callers import Caller
from app.services.refusal import NotFound

READ = "preferences:read"
WRITE = "preferences:write"

blueprint = Blueprint("frequency-caps", __name__, url_prefix="/v1", description="Frequency caps of a tenant")

_USUAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)
_CATEGORY_LENGTH = 64


@route(
    blueprint,
    "GET",
    "/frequency-caps",
    operation(
        "List frequency caps",
        {HTTPStatus.OK: ("By category.", FrequencyCapList)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *_USUAL),
    ),
)
@requires(READ)
def list_caps(caller: Caller) -> Response:
    """A tenant has at most a hundred, so all of them are on one page."""
    no_query()
    return _json({"data": services().caps.all(caller.tenant_id), "next_cursor": None})


@route(
    blueprint,
    "PUT",
    "/frequency-caps/<category>",
    operation(
        "Set the frequency cap of a category",
        {HTTPStatus.OK: ("It holds for what is accepted from now on.", FrequencyCapView)},
        scope=WRITE,
        body=FrequencyCapRequest,
        errors=(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            *_USUAL,
        ),
    ),
)
@requires(WRITE)
def put_cap(category: str, caller: Caller) -> Response:
    """HIGH notifications are never capped. A limit of 0 lets nothing of the category out over these channels."""
    no_query()
    cap = validate(FrequencyCapRequest, json_body()).cap()
    return _json(services().caps.put(caller.tenant_id, _category(category), cap))


@route(
    blueprint,
    "DELETE",
    "/frequency-caps/<category>",
    operation(
        "Take the frequency cap of a category away",
        {HTTPStatus.NO_CONTENT: ("There is none any more.", None)},
        scope=WRITE,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(WRITE)
def delete_cap(category: str, caller: Caller) -> Response:
    """What was suppressed stays so."""
    no_query()
    services().caps.delete(caller.tenant_id, _category(category))
    return Response(status=HTTPStatus.NO_CONTENT)


def _category(text: str) -> str:
    """Return the category of a path; what no notification could carry is not found."""
    if len(text) > _CATEGORY_LENGTH or not text.isprintable() or not text.strip():
        raise NotFound("DOMAIN_FREQUENCY_CAP_NOT_FOUND", "There is no such category.")
    return text


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), mimetype=JSON)
