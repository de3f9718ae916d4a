"""`/v1/users/{id}/preferences`: what a person wants to get, on which channels, and at which hours."""

import re
from http import HTTPStatus
from typing import Any

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api.auth import refuse_others, requires
from app.api.body import json_body, no_query
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.openapi import BODY_ERRORS, USUAL_ERRORS, operation, route
from app.api.preference_schemas import PreferencesPatch, PreferencesRequest, PreferencesView
from app.api.schemas import validate
from app.domain.callers import Caller
from app.services.refusal import Problem

READ = "preferences:read"
WRITE = "preferences:write"
_ID = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,255}")

blueprint = Blueprint("preferences", __name__, url_prefix="/v1", description="What people chose")


@route(
    blueprint,
    "GET",
    "/users/<user_id>/preferences",
    operation(
        "Read a user's preferences",
        {HTTPStatus.OK: ("What was chosen, and what comes of it.", PreferencesView)},
        scope=READ,
        errors=(HTTPStatus.BAD_REQUEST, *USUAL_ERRORS),
    ),
)
@requires(READ, users=True)
def read_preferences(user_id: str, caller: Caller) -> Response:
    """Whoever chose nothing has preferences too: the tenant's. Each channel names the rule that decided it."""
    no_query()
    return _json(services().preferences.show(caller.tenant_id, _own(caller, user_id)))


@route(
    blueprint,
    "PUT",
    "/users/<user_id>/preferences",
    operation(
        "Replace a user's preferences",
        {HTTPStatus.OK: ("What was chosen, and what comes of it.", PreferencesView)},
        scope=WRITE,
        body=PreferencesRequest,
        errors=(*BODY_ERRORS, *USUAL_ERRORS),
    ),
)
@requires(WRITE, users=True)
def put_preferences(user_id: str, caller: Caller) -> Response:
    """The user need not be stored here. Messages that wait already are looked at again before they are sent."""
    no_query()
    choices, quiet = validate(PreferencesRequest, json_body()).wishes()
    return _json(services().preferences.replace(caller, _own(caller, user_id), choices, quiet))


@route(
    blueprint,
    "PATCH",
    "/users/<user_id>/preferences",
    operation(
        "Change some of a user's preferences",
        {HTTPStatus.OK: ("What was chosen, and what comes of it.", PreferencesView)},
        scope=WRITE,
        body=PreferencesPatch,
        errors=(*BODY_ERRORS, *USUAL_ERRORS),
    ),
)
@requires(WRITE, users=True)
def patch_preferences(user_id: str, caller: Caller) -> Response:
    """What is not named stays; `null` takes a word back."""
    no_query()
    choices, quiet = validate(PreferencesPatch, json_body()).wishes()
    return _json(services().preferences.change(caller, _own(caller, user_id), choices, quiet))


def _own(caller: Caller, user_id: str) -> str:
    if not _ID.fullmatch(user_id) or not user_id.strip():
        problem = Problem("user_id", "must be 1 to 255 visible characters")
        raise ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_REQUEST", "This is no id of a user.", [problem])
    refuse_others(caller, user_id)
    return user_id


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), mimetype=JSON)
