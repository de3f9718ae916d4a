"""`/v1/notifications`: accept, read, cancel."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api import etags
from app.api.answers import CancelView, NotificationAccepted, NotificationView
from app.api.auth import refuse_others, requires
from app.api.body import UUID_FORM, idempotency_key, json_body, no_query
from app.api.context import services
from app.api.errors import JSON
from app.api.openapi import operation, route
from app.api.schemas import NotificationRequest, validate
from app.domain.callers import Caller, Role
from app.services.manage_users import sees_addresses
from app.services.refusal import NotFound

READ = "notifications:read"
WRITE = "notifications:write"

blueprint = Blueprint(
    "notifications", __name__, url_prefix="/v1", description="Notifications and their deliveries"
)

_ROUTE = "POST /v1/notifications"
_REPLAYED = {"Idempotency-Replayed": "true"}
_USUAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)


@route(
    blueprint,
    "POST",
    "/notifications",
    operation(
        "Accept a notification",
        {HTTPStatus.ACCEPTED: ("Stored; it will be delivered.", NotificationAccepted)},
        scope=WRITE,
        body=NotificationRequest,
        errors=(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            *_USUAL,
        ),
        headers=[("Idempotency-Key", "1 to 255 visible ASCII characters; the same key makes one notification.")],
    ),
)
@requires(WRITE, users=True)
def accept_notification(caller: Caller) -> Response:
    """A repeated request with the same key gets the first one's answer, and `Idempotency-Replayed: true`.

    A token of the role USER notifies its own subject only, and its keys are its own.
    """
    no_query()
    body = json_body()
    submission = validate(NotificationRequest, body).submission()
    refuse_others(caller, submission.user_id)
    answer = services().accept.one(caller.tenant_id, submission, idempotency_key(_route(caller), body))
    headers = _REPLAYED if answer.is_replay else None
    return Response(answer.text, HTTPStatus.ACCEPTED, headers, mimetype=JSON)


@route(
    blueprint,
    "GET",
    "/notifications/<identifier>",
    operation(
        "Read a notification",
        {HTTPStatus.OK: ("As it stands now.", NotificationView), **etags.UNCHANGED},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(READ, users=True)
def read_notification(identifier: str, caller: Caller) -> Response:
    """It comes with its deliveries, and each of them with its attempts.

    Recipients are masked unless the caller is the user or has `recipients:read`.
    """
    no_query()
    found = services().read(
        caller.tenant_id,
        _uuid(identifier),
        caller.only_user,
        with_deleted=caller.role is Role.ADMIN,
        shows_addresses=sees_addresses(caller, caller.only_user),
    )
    return etags.answered(orjson.dumps(found))


@route(
    blueprint,
    "POST",
    "/notifications/<identifier>/cancel",
    operation(
        "Cancel a notification",
        {HTTPStatus.OK: ("What became of each delivery.", CancelView)},
        scope=WRITE,
        errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, *_USUAL),
    ),
)
@requires(WRITE, users=True)
def cancel_notification(identifier: str, caller: Caller) -> Response:
    """What has not begun is called off. What is being sent may still arrive; it is not tried again after that."""
    no_query()
    return _json(services().cancel(caller, _uuid(identifier)))


def _route(caller: Caller) -> str:
    """Return what an Idempotency-Key belongs to. A person cannot take the key of another, or of a service."""
    return _ROUTE if caller.only_user is None else f"{_ROUTE} of {caller.only_user}"


def _uuid(text: str) -> UUID:
    if not UUID_FORM.fullmatch(text):
        raise NotFound("DOMAIN_NOTIFICATION_NOT_FOUND", "There is no such notification.")
    return UUID(text)


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), mimetype=JSON)
