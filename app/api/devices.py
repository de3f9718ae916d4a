"""`/v1/users/{id}/devices`: where push messages of a user go. A person manages their own."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api.auth import requires
from app.api.body import UUID_FORM, json_body, no_query
from app.api.context import services
from app.api.errors import JSON
from app.api.openapi import operation, route
from app.api.schemas import validate
from app.api.user_schemas import DeviceChange, DeviceList, DeviceRequest, DeviceView
from app.api.users import READ, WRITE, user_id
from app.domain.callers import Caller
from app.services.manage_devices import device_not_found

blueprint = Blueprint("devices", __name__, url_prefix="/v1", description="Devices of users")

_USUAL = (HTTPStatus.NOT_FOUND, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)
_BODY = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)


@route(
    blueprint,
    "POST",
    "/users/<identifier>/devices",
    operation(
        "Register a device",
        {HTTPStatus.OK: ("It was registered before.", DeviceView), HTTPStatus.CREATED: ("New.", DeviceView)},
        scope=WRITE,
        body=DeviceRequest,
        errors=(*_BODY, *_USUAL),
    ),
)
@requires(WRITE, users=True)
def register_device(identifier: str, caller: Caller) -> Response:
    """Call it at every start of the app.

    A token that another user of the tenant had is theirs no more. A user who has as many devices as are kept loses
    the one that was not seen for longest.
    """
    no_query()
    given = validate(DeviceRequest, json_body()).model_dump()
    device, is_new = services().devices.register(caller, user_id(identifier), given)
    return _json(device, HTTPStatus.CREATED if is_new else HTTPStatus.OK)


@route(
    blueprint,
    "GET",
    "/users/<identifier>/devices",
    operation(
        "List a user's devices",
        {HTTPStatus.OK: ("All of them, the one seen last first.", DeviceList)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *_USUAL),
    ),
)
@requires(READ, users=True)
def list_devices(identifier: str, caller: Caller) -> Response:
    """Tokens are masked unless the caller is the user or has `recipients:read`."""
    no_query()
    return _json({"data": services().devices.page(caller, user_id(identifier))})


@route(
    blueprint,
    "PATCH",
    "/users/<identifier>/devices/<device>",
    operation(
        "Mute a device, or change its zone",
        {HTTPStatus.OK: ("Changed.", DeviceView)},
        scope=WRITE,
        body=DeviceChange,
        errors=(*_BODY, *_USUAL),
    ),
)
@requires(WRITE, users=True)
def change_device(identifier: str, device: str, caller: Caller) -> Response:
    """A muted device gets nothing; the others of the user do."""
    no_query()
    given = validate(DeviceChange, json_body()).model_dump(exclude_unset=True)
    return _json(services().devices.change(caller, user_id(identifier), _id(device), given))


@route(
    blueprint,
    "DELETE",
    "/users/<identifier>/devices/<device>",
    operation(
        "Forget a device",
        {HTTPStatus.NO_CONTENT: ("It is forgotten.", None)},
        scope=WRITE,
        errors=(HTTPStatus.BAD_REQUEST, *_USUAL),
    ),
)
@requires(WRITE, users=True)
def remove_device(identifier: str, device: str, caller: Caller) -> Response:
    """What was waiting to be sent to it is not sent."""
    no_query()
    services().devices.remove(caller, user_id(identifier), _id(device))
    return Response(status=HTTPStatus.NO_CONTENT)


def _id(text: str) -> str:
    if not UUID_FORM.fullmatch(text):
        raise device_not_found()
    return str(UUID(text))


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(value), status, mimetype=JSON)
