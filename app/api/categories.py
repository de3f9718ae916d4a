"""`/v1/categories` and `/v1/tenant/defaults`: what a tenant says about its messages."""

from http import HTTPStatus
from typing import Any

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api.auth import requires
from app.api.body import json_body, page_query
from app.api.body import no_query as refuse_query
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import BODY_ERRORS, PAGE_QUERY, USUAL_ERRORS, operation, route
from app.api.preference_schemas import (
    CategoryList,
    CategoryRequest,
    CategoryView,
    TenantDefaults,
    TenantDefaultsView,
    name_problem,
)
from app.api.schemas import validate
from app.domain.callers import Caller
from app.services.refusal import Problem

READ = "preferences:read"
WRITE = "preferences:write"

blueprint = Blueprint("categories", __name__, url_prefix="/v1", description="Categories and defaults of a tenant")


@route(
    blueprint,
    "GET",
    "/categories",
    operation(
        "List declared categories",
        {HTTPStatus.OK: ("By name.", CategoryList)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *USUAL_ERRORS),
        query=PAGE_QUERY,
    ),
)
@requires(READ, users=True)
def list_categories(caller: Caller) -> Response:
    """Categories exist without being declared: those listed are the ones that the tenant said something about."""
    limit, cursor = page_query()
    try:
        page = services().policies.categories(caller.tenant_id, limit, cursor)
    except ValueError as error:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list."
        ) from error
    return _json({"data": page.shown, "next_cursor": page.next_cursor})


@route(
    blueprint,
    "GET",
    "/categories/<name>",
    operation(
        "Read a category",
        {HTTPStatus.OK: ("What holds for it.", CategoryView)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *USUAL_ERRORS),
    ),
)
@requires(READ, users=True)
def read_category(name: str, caller: Caller) -> Response:
    """One that is not declared is at our defaults: `security` is mandatory, `marketing` keeps quiet at night."""
    refuse_query()
    return _json(services().policies.category(caller.tenant_id, _name(name)))


@route(
    blueprint,
    "PUT",
    "/categories/<name>",
    operation(
        "Declare a category",
        {HTTPStatus.OK: ("What holds for it now.", CategoryView)},
        scope=WRITE,
        body=CategoryRequest,
        errors=(*BODY_ERRORS, *USUAL_ERRORS),
    ),
)
@requires(WRITE)
def put_category(name: str, caller: Caller) -> Response:
    """In the place of what was declared before. It counts for waiting messages too, within seconds."""
    refuse_query()
    asked = validate(CategoryRequest, json_body())
    channels, quiet = dict(asked.channels), dict(asked.quiet_hours)
    return _json(services().policies.set_category(caller, _name(name), asked.mandatory, channels, quiet))  # type: ignore[arg-type]


@route(
    blueprint,
    "DELETE",
    "/categories/<name>",
    operation(
        "Take the declaration of a category back",
        {HTTPStatus.NO_CONTENT: ("It is at our defaults again.", None)},
        scope=WRITE,
        errors=(HTTPStatus.BAD_REQUEST, *USUAL_ERRORS),
    ),
)
@requires(WRITE)
def delete_category(name: str, caller: Caller) -> Response:
    """What people chose about it stays. That it was not declared is no fault."""
    refuse_query()
    services().policies.delete_category(caller, _name(name))
    return Response(status=HTTPStatus.NO_CONTENT)


@route(
    blueprint,
    "GET",
    "/tenant/defaults",
    operation(
        "Read the tenant's defaults",
        {HTTPStatus.OK: ("What holds where nobody says anything else.", TenantDefaultsView)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *USUAL_ERRORS),
    ),
)
@requires(READ, users=True)
def read_defaults(caller: Caller) -> Response:
    """Ours where the tenant never set any."""
    refuse_query()
    return _json(services().policies.tenant(caller.tenant_id))


@route(
    blueprint,
    "PUT",
    "/tenant/defaults",
    operation(
        "Replace the tenant's defaults",
        {HTTPStatus.OK: ("What holds now.", TenantDefaultsView)},
        scope=WRITE,
        body=TenantDefaults,
        errors=(*BODY_ERRORS, *USUAL_ERRORS),
    ),
)
@requires(WRITE)
def put_defaults(caller: Caller) -> Response:
    """What is left out goes back to our default."""
    refuse_query()
    return _json(services().policies.set_tenant(caller, validate(TenantDefaults, json_body()).policy()))


def _name(text: str) -> str:
    problem = name_problem(text)
    if problem is not None:
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "VALIDATION_REQUEST",
            "This is no name of a category.",
            [Problem("name", problem)],
        )
    return text


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), mimetype=JSON)
