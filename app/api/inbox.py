"""What a reader does to notifications: seen, read, archived, deleted, and back."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from flask import Response, request
from flask_smorest import Blueprint

from app.api import reading_query as query
from app.api.answers import NotificationView
from app.api.auth import requires
from app.api.body import UUID_FORM, json_body, no_query
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.notifications import WRITE
from app.api.openapi import operation, route
from app.api.reading_schemas import Marks, ReadAllRequest, ReadAllView
from app.api.schemas import validate
from app.domain.callers import Caller, Role
from app.domain.instants import instant
from app.domain.request_kinds import RequestKind
from app.services.manage_users import sees_addresses
from app.services.refusal import NotFound

blueprint = Blueprint("inbox", __name__, url_prefix="/v1", description="What a reader does to notifications")

_USUAL = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


def _marking(summary: str) -> dict[str, Any]:
    return operation(summary, {HTTPStatus.OK: ("As it is marked now.", Marks)}, scope=WRITE, errors=_USUAL)


@route(blueprint, "PUT", "/notifications/<identifier>/seen", _marking("Mark a notification as seen"))
@requires(WRITE, users=True, kind=RequestKind.READ_MARK)
def mark_seen(identifier: str, caller: Caller) -> Response:
    """It was shown to the user. Again changes nothing: the first instant is kept."""
    return _mark(caller, identifier, "seen")


@route(blueprint, "PUT", "/notifications/<identifier>/read", _marking("Mark a notification as read"))
@requires(WRITE, users=True, kind=RequestKind.READ_MARK)
def mark_read(identifier: str, caller: Caller) -> Response:
    """The user opened it, and so has seen it. Again changes nothing: the first instant is kept."""
    return _mark(caller, identifier, "read")


@route(blueprint, "DELETE", "/notifications/<identifier>/read", _marking("Mark a notification as unread"))
@requires(WRITE, users=True, kind=RequestKind.READ_MARK)
def mark_unread(identifier: str, caller: Caller) -> Response:
    """It counts as unread again, and stays seen."""
    return _mark(caller, identifier, "unread")


@route(blueprint, "PUT", "/notifications/<identifier>/archived", _marking("Archive a notification"))
@requires(WRITE, users=True, kind=RequestKind.READ_MARK)
def archive(identifier: str, caller: Caller) -> Response:
    """It leaves the inbox for the archive, and no longer counts as unread. Again changes nothing."""
    return _mark(caller, identifier, "archived")


@route(
    blueprint, "DELETE", "/notifications/<identifier>/archived", _marking("Take a notification out of the archive")
)
@requires(WRITE, users=True, kind=RequestKind.READ_MARK)
def unarchive(identifier: str, caller: Caller) -> Response:
    """It is in the inbox again, unread if it was not read."""
    return _mark(caller, identifier, "unarchived")


@route(
    blueprint,
    "PUT",
    "/notifications/read-all",
    operation(
        "Mark an inbox as read",
        {HTTPStatus.OK: ("How many were unread.", ReadAllView)},
        scope=WRITE,
        body=ReadAllRequest,
        is_body_required=False,
        errors=(
            *_USUAL[:3],
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.SERVICE_UNAVAILABLE,
        ),
    ),
)
@requires(WRITE, users=True, kind=RequestKind.READ_MARK)
def read_all(caller: Caller) -> Response:
    """What came in up to `until`, or now. What arrives during the call stays unread."""
    no_query()
    has_body = bool(request.mimetype or request.content_length)
    asked = validate(ReadAllRequest, json_body() if has_body else {})
    user_id = query.needed(query.held(caller, asked.user_id))
    until = None if asked.until is None else query.as_instant("until", asked.until)
    count, used = services().inbox.read_all(caller.tenant_id, user_id, until, asked.category)
    return _json({"updated": count, "until": instant(used)})


@route(
    blueprint,
    "DELETE",
    "/notifications/<identifier>",
    operation(
        "Delete a notification",
        {HTTPStatus.NO_CONTENT: ("It is hidden, and what was not sent is called off.", None)},
        scope=WRITE,
        errors=_USUAL,
    ),
)
@requires(WRITE, users=True)
def delete(identifier: str, caller: Caller) -> Response:
    """From then on it is 404 for everybody but an ADMIN, and in no list. What is being sent may still arrive."""
    no_query()
    services().inbox.delete(caller, _uuid(identifier))
    return Response(status=HTTPStatus.NO_CONTENT)


@route(
    blueprint,
    "POST",
    "/notifications/<identifier>/restore",
    operation(
        "Restore a deleted notification",
        {HTTPStatus.OK: ("As it stands now.", NotificationView)},
        scope=WRITE,
        errors=_USUAL,
    ),
)
@requires(WRITE)
def restore(identifier: str, caller: Caller) -> Response:
    """For the role ADMIN. It is shown again; deliveries that were called off stay so."""
    no_query()
    if caller.role is not Role.ADMIN:
        raise ApiError(HTTPStatus.FORBIDDEN, "AUTH_ROLE_NOT_ALLOWED", "This is open to the role ADMIN only.")
    services().inbox.restore(caller.tenant_id, _uuid(identifier))
    return _json(
        services().read(caller.tenant_id, _uuid(identifier), shows_addresses=sees_addresses(caller, None))
    )


def _mark(caller: Caller, identifier: str, mark: str) -> Response:
    no_query()
    marked = services().inbox.mark(caller.tenant_id, _uuid(identifier), mark, caller.only_user)
    moments = {name: getattr(marked, name) for name in ("seen_at", "read_at", "archived_at")}
    return _json({"id": marked.id} | {name: at and instant(at) for name, at in moments.items()})


def _uuid(text: str) -> UUID:
    if not UUID_FORM.fullmatch(text):
        raise NotFound("DOMAIN_NOTIFICATION_NOT_FOUND", "There is no such notification.")
    return UUID(text)


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), mimetype=JSON)
