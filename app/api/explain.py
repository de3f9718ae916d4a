"""`/v1/explain`: the body of a notification in, what would become of it out. It has no effect."""

from http import HTTPStatus

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api.answers import Explained
from app.api.auth import refuse_others, requires
from app.api.body import json_body, no_query
from app.api.context import services
from app.api.errors import JSON
from app.api.openapi import BODY_ERRORS, USUAL_ERRORS, operation, route
from app.api.schemas import NotificationRequest, validate
from app.domain.callers import Caller

# It tells what a user chose and whether they are known: as much trust as to notify them.
WRITE = "notifications:write"

blueprint = Blueprint("explain", __name__, url_prefix="/v1", description="What would become of a notification")


@route(
    blueprint,
    "POST",
    "/explain",
    operation(
        "Explain a notification",
        {HTTPStatus.OK: ("What would become of it. Nothing was stored and nothing is sent.", Explained)},
        scope=WRITE,
        body=NotificationRequest,
        errors=(*BODY_ERRORS, *USUAL_ERRORS),
    ),
)
@requires(WRITE, users=True)
def explain_notification(caller: Caller) -> Response:
    """Each channel with its provider, its time and the rule that decides; refused where accepting would be."""
    no_query()
    submission = validate(NotificationRequest, json_body()).submission()
    refuse_others(caller, submission.user_id)
    return Response(orjson.dumps(services().explain(caller.tenant_id, submission)), mimetype=JSON)
