"""`/v1/audit`: who did what in a tenant, newest first."""

from http import HTTPStatus

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api.answers import AuditList
from app.api.auth import requires
from app.api.body import instant_argument, page_query, text_argument
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import Query, operation, route
from app.domain.callers import Caller
from app.services.audit_log import AuditFilter, view

READ = "audit:read"

blueprint = Blueprint("audit", __name__, url_prefix="/v1", description="The audit log")

_TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
_INSTANT = {"type": "string", "format": "date-time"}
_QUERY = (
    Query("action", "One action, `api_key.created`, or all of a kind, `api_key`.", _TEXT),
    Query("actor", "Who did it: a subject, or the prefix of an API key.", _TEXT),
    Query("resource_type", "What it was done to, `api_key`.", _TEXT),
    Query("resource_id", "The id of that.", _TEXT),
    Query("from", "From this instant on.", _INSTANT),
    Query("to", "Before this instant.", _INSTANT),
    Query("limit", "Entries on a page, 20 unless asked.", {"type": "integer", "minimum": 1, "maximum": 100}),
    Query("cursor", "`next_cursor` of the page before.", {"type": "string"}),
)


@route(
    blueprint,
    "GET",
    "/audit",
    operation(
        "Read the audit log",
        {HTTPStatus.OK: ("Newest first.", AuditList)},
        scope=READ,
        errors=(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.UNAUTHORIZED,
            HTTPStatus.FORBIDDEN,
            HTTPStatus.SERVICE_UNAVAILABLE,
        ),
        query=_QUERY,
    ),
)
@requires(READ)
def list_entries(caller: Caller) -> Response:
    """Entries cannot be changed, and leave the log by whole months."""
    limit, cursor = page_query({each.name for each in _QUERY})
    wanted = AuditFilter(
        **{name: text_argument(name) for name in ("action", "actor", "resource_type", "resource_id")},
        since=instant_argument("from"),
        until=instant_argument("to"),
    )
    try:
        page = services().audit.page(caller.tenant_id, wanted, limit, cursor)
    except ValueError as error:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list."
        ) from error
    body = {"data": [view(row) for row in page.rows], "next_cursor": page.next_cursor}
    return Response(orjson.dumps(body), mimetype=JSON)
