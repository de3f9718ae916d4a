"""`/v1/templates`: keep, list, choose among versions, archive and look at what notifications are written with."""

import re
from http import HTTPStatus
from typing import Any

import orjson
from flask import Response, request
from flask_smorest import Blueprint

from app.api.auth import requires
from app.api.body import json_body, page_query
from app.api.body import no_query as refuse_query
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import Query, operation, route
from app.api.schemas import validate
from app.api.template_schemas import (
    NAME,
    PreviewRequest,
    PreviewView,
    TemplateChoice,
    TemplateList,
    TemplateRequest,
    TemplateVersionList,
    TemplateVersionView,
    TemplateView,
)
from app.domain.callers import Caller
from app.services.refusal import NotFound, Problem
from app.services.templates.manage import listed_view, version_view, view

READ = "templates:read"
WRITE = "templates:write"

blueprint = Blueprint("templates", __name__, url_prefix="/v1", description="What notifications are written with")

_USUAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)
_BODY = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_PAGES = (
    Query("limit", "Entries on a page, 20 unless asked.", {"type": "integer", "minimum": 1, "maximum": 100}),
    Query("cursor", "`next_cursor` of the page before.", {"type": "string"}),
)
_ARCHIVED = Query("archived", "`true`: the archived ones instead of those in use.", {"type": "boolean"})
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@route(
    blueprint,
    "PUT",
    "/templates/<name>",
    operation(
        "Keep a template",
        {
            HTTPStatus.OK: ("The current version says the same already; nothing was made.", TemplateView),
            HTTPStatus.CREATED: ("A new version, which is the current one.", TemplateView),
        },
        scope=WRITE,
        body=TemplateRequest,
        errors=(*_BODY, *_USUAL),
    ),
)
@requires(WRITE)
def put_template(name: str, caller: Caller) -> Response:
    """What was accepted before is still sent with the version of its time. An archived template is in use again.

    422 names the field and the line of all that cannot be kept.
    """
    refuse_query()
    if not NAME.fullmatch(name):
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "VALIDATION_TEMPLATE_NAME",
            "A template's name is 1 to 128 letters, digits, dots, hyphens and underscores.",
            [Problem("name", "begins with a letter or digit")],
        )
    asked = validate(TemplateRequest, json_body())
    held = services().templates.store(caller, name, asked.draft(asked.category))
    return _json(view(held), HTTPStatus.CREATED if held.is_new else HTTPStatus.OK)


@route(
    blueprint,
    "GET",
    "/templates",
    operation(
        "List templates",
        {HTTPStatus.OK: ("By name.", TemplateList)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *_USUAL),
        query=(*_PAGES, _ARCHIVED),
    ),
)
@requires(READ)
def list_templates(caller: Caller) -> Response:
    """Those in use, or the archived ones."""
    limit, cursor = page_query({"archived"})
    archived = request.args.get("archived", "false")
    if archived not in {"true", "false"}:
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "VALIDATION_QUERY",
            "The query cannot be understood.",
            [Problem("archived", "must be true or false")],
        )
    try:
        page = services().templates.page(caller, limit, cursor, archived=archived == "true")
    except ValueError as error:
        raise _bad_cursor() from error
    return _json({"data": [listed_view(row) for row in page.rows], "next_cursor": page.next_cursor})


@route(
    blueprint,
    "GET",
    "/templates/<name>",
    operation(
        "Read a template",
        {HTTPStatus.OK: ("With its current version.", TemplateView)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(READ)
def read_template(name: str, caller: Caller) -> Response:
    """An archived one too: `archived_at` says so."""
    refuse_query()
    return _json(view(services().templates.find(caller, _known(name))))


@route(
    blueprint,
    "PATCH",
    "/templates/<name>",
    operation(
        "Choose the current version",
        {HTTPStatus.OK: ("The template with the chosen version.", TemplateView)},
        scope=WRITE,
        body=TemplateChoice,
        errors=(*_BODY, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(WRITE)
def choose_version(name: str, caller: Caller) -> Response:
    """For going back to an earlier one, or forth again. An archived template is in use again."""
    refuse_query()
    asked = validate(TemplateChoice, json_body())
    return _json(view(services().templates.choose(caller, _known(name), asked.current_version)))


@route(
    blueprint,
    "DELETE",
    "/templates/<name>",
    operation(
        "Archive a template",
        {HTTPStatus.NO_CONTENT: ("It is out of use.", None)},
        scope=WRITE,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(WRITE)
def archive_template(name: str, caller: Caller) -> Response:
    """No notification can name it any more; those that were accepted with it are still sent."""
    refuse_query()
    services().templates.archive(caller, _known(name))
    return Response(status=HTTPStatus.NO_CONTENT)


@route(
    blueprint,
    "GET",
    "/templates/<name>/versions",
    operation(
        "List the versions of a template",
        {HTTPStatus.OK: ("Newest first.", TemplateVersionList)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
        query=_PAGES,
    ),
)
@requires(READ)
def list_versions(name: str, caller: Caller) -> Response:
    """All that there ever were."""
    limit, cursor = page_query()
    try:
        page = services().templates.versions(caller, _known(name), limit, cursor)
    except ValueError as error:
        raise _bad_cursor() from error
    return _json({"data": [version_view(row) for row in page.rows], "next_cursor": page.next_cursor})


@route(
    blueprint,
    "GET",
    "/templates/<name>/versions/<number>",
    operation(
        "Read a version of a template",
        {HTTPStatus.OK: ("As it was kept.", TemplateVersionView)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(READ)
def read_version(name: str, number: str, caller: Caller) -> Response:
    """A version never changes."""
    refuse_query()
    if not _NUMBER.fullmatch(number):
        raise NotFound("DOMAIN_TEMPLATE_VERSION_NOT_FOUND", "The template has no such version.")
    return _json(version_view(services().templates.find(caller, _known(name), int(number)).version))


@route(
    blueprint,
    "POST",
    "/templates/<name>/preview",
    operation(
        "Look at a template before it is sent",
        {HTTPStatus.OK: ("What each channel would carry, and what to think about before.", PreviewView)},
        scope=READ,
        body=PreviewRequest,
        errors=(*_BODY, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(READ)
def preview_template(name: str, caller: Caller) -> Response:
    """Sends and keeps nothing. With `template` in the body it shows that, kept or not."""
    refuse_query()
    asked = validate(PreviewRequest, json_body())
    return _json(services().preview.show(caller, _known(name), asked.wish()))


def _known(name: str) -> str:
    if not NAME.fullmatch(name):
        raise NotFound("DOMAIN_TEMPLATE_UNKNOWN", "There is no such template.")
    return name


def _bad_cursor() -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list.")


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(value), status, mimetype=JSON)
