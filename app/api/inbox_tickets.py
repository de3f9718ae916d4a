"""`/v1/inbox/tickets`: tickets with which a browser opens a live inbox at the stream process."""

from http import HTTPStatus

import orjson
from flask import Response, request
from flask_smorest import Blueprint

from app.api.auth import requires
from app.api.body import json_body, no_query
from app.api.context import services
from app.api.errors import JSON
from app.api.openapi import operation, route
from app.api.schemas import validate
from app.api.ticket_schemas import StreamTicket, StreamTicketRequest
from app.domain.callers import Caller
from app.services.open_stream import SCOPE, reader_of
from app.services.stream_tickets import TICKET_SECONDS

blueprint = Blueprint("inbox-tickets", __name__, url_prefix="/v1", description="Tickets for live inboxes")


@route(
    blueprint,
    "POST",
    "/inbox/tickets",
    operation(
        "Get a ticket for a live inbox",
        {HTTPStatus.CREATED: ("For `GET /v1/inbox/stream?ticket=…` of the stream process.", StreamTicket)},
        scope=SCOPE,
        body=StreamTicketRequest,
        is_body_required=False,
        errors=(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            HTTPStatus.UNAUTHORIZED,
            HTTPStatus.FORBIDDEN,
            HTTPStatus.SERVICE_UNAVAILABLE,
        ),
    ),
)
@requires(SCOPE, users=True)
def create_ticket(caller: Caller) -> Response:
    """For browsers, whose `EventSource` cannot send a token. It is good for a minute and for nothing else.

    A token of the role USER gets one for its own subject; any other caller names the user.
    """
    no_query()
    has_body = bool(request.mimetype or request.content_length)
    asked = validate(StreamTicketRequest, json_body() if has_body else {})
    user_id = reader_of(caller, None if asked.user_id is None else str(asked.user_id))
    proven = services().sign_in.proven(request.headers.get("Authorization"))
    ticket = services().tickets.make(proven, user_id)
    body = orjson.dumps({"ticket": ticket, "expires_in": TICKET_SECONDS})
    return Response(body, HTTPStatus.CREATED, {"Cache-Control": "no-store"}, mimetype=JSON)
