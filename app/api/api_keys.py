"""`/v1/api-keys`: make, list, replace and revoke the keys of a tenant's services."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from flask import Response, request
from flask_smorest import Blueprint

from app.api.answers import ApiKeyIssued, ApiKeyList
from app.api.auth import requires
from app.api.body import UUID_FORM, json_body, page_query
from app.api.body import no_query as refuse_query
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import Query, operation, route
from app.api.schemas import ApiKeyRequest, ApiKeyRotation, validate
from app.domain.callers import Caller
from app.services.manage_keys import view
from app.services.refusal import NotFound

MANAGE = "keys:manage"

blueprint = Blueprint("api-keys", __name__, url_prefix="/v1", description="API keys of product services")

_USUAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)
_BODY = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
# The answer holds a secret: it is for the one who asked, and for nobody's cache.
_NOT_KEPT = {"Cache-Control": "no-store"}


@route(
    blueprint,
    "POST",
    "/api-keys",
    operation(
        "Make an API key",
        {HTTPStatus.CREATED: ("Made. This answer is the only one that shows the key.", ApiKeyIssued)},
        scope=MANAGE,
        body=ApiKeyRequest,
        errors=(*_BODY, *_USUAL),
    ),
)
@requires(MANAGE)
def create_key(caller: Caller) -> Response:
    """Its scopes are at most those of the caller.

    When the answer got lost, nobody knows the key: revoke what the list shows and make another.
    """
    refuse_query()
    asked = validate(ApiKeyRequest, json_body())
    issued = services().keys.create(caller, asked.name, asked.scopes, asked.expires_in)
    return _json(issued.view(), HTTPStatus.CREATED, _NOT_KEPT)


@route(
    blueprint,
    "GET",
    "/api-keys",
    operation(
        "List API keys",
        {HTTPStatus.OK: ("Newest first, those that have ended too.", ApiKeyList)},
        scope=MANAGE,
        errors=(HTTPStatus.BAD_REQUEST, *_USUAL),
        query=(
            Query("limit", "Keys on a page, 20 unless asked.", {"type": "integer", "minimum": 1, "maximum": 100}),
            Query("cursor", "`next_cursor` of the page before.", {"type": "string"}),
        ),
    ),
)
@requires(MANAGE)
def list_keys(caller: Caller) -> Response:
    """A key is told by its prefix; the key itself is known only to whoever got it."""
    limit, cursor = page_query()
    try:
        page = services().keys.page(caller, limit, cursor)
    except ValueError as error:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list."
        ) from error
    return _json({"data": [view(row) for row in page.rows], "next_cursor": page.next_cursor})


@route(
    blueprint,
    "POST",
    "/api-keys/<identifier>/rotate",
    operation(
        "Replace an API key",
        {HTTPStatus.CREATED: ("A new key. The old one ends after the overlap.", ApiKeyIssued)},
        scope=MANAGE,
        body=ApiKeyRotation,
        is_body_required=False,
        errors=(*_BODY, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(MANAGE)
def rotate_key(identifier: str, caller: Caller) -> Response:
    """The new key has the old one's name, scopes and lifetime. Both work until the overlap is over."""
    refuse_query()
    # Without a body everything is at its default; one that is there must be right.
    has_body = bool(request.mimetype or request.content_length)
    asked = validate(ApiKeyRotation, json_body() if has_body else {})
    issued = services().keys.rotate(caller, _id(identifier), asked.overlap_seconds)
    return _json(issued.view(), HTTPStatus.CREATED, _NOT_KEPT)


@route(
    blueprint,
    "DELETE",
    "/api-keys/<identifier>",
    operation(
        "Revoke an API key",
        {HTTPStatus.NO_CONTENT: ("It has ended.", None)},
        scope=MANAGE,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(MANAGE)
def revoke_key(identifier: str, caller: Caller) -> Response:
    """It ends at once; a server that looked at it just before may let it pass for some seconds more."""
    refuse_query()
    services().keys.revoke(caller, _id(identifier))
    return Response(status=HTTPStatus.NO_CONTENT)


def _id(text: str) -> str:
    if not UUID_FORM.fullmatch(text):
        raise NotFound("DOMAIN_API_KEY_NOT_FOUND", "There is no such API key.")
    return str(UUID(text))


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, mimetype=JSON)
