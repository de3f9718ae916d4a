"""Reading many: lists of notifications, statistics, unread counts and the inbox."""

from http import HTTPStatus
from typing import Any

import orjson
from flask import Response
from flask_smorest import Blueprint

from app.api import etags
from app.api import reading_query as query
from app.api.auth import refuse_others, requires
from app.api.body import no_query, page_query
from app.api.context import services
from app.api.errors import JSON, ApiError
from app.api.notifications import READ
from app.api.openapi import operation, route
from app.api.reading_schemas import InboxList, NotificationList, StatisticsView, UnreadCount
from app.domain.callers import Caller
from app.services.listing import Listed
from app.services.manage_users import sees_addresses

blueprint = Blueprint("reading", __name__, url_prefix="/v1", description="Lists, statistics and the inbox")

_ERRORS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


@route(
    blueprint,
    "GET",
    "/notifications",
    operation(
        "List notifications",
        {HTTPStatus.OK: ("Newest first, without their attempts.", NotificationList), **etags.UNCHANGED},
        scope=READ,
        errors=_ERRORS,
        query=(*query.FILTERS, *query.PAGE),
    ),
)
@requires(READ, users=True)
def list_notifications(caller: Caller) -> Response:
    """A page with a filter may be short, even empty, and still have a next one: go on until `next_cursor` is null.

    A token of the role USER gets its own. Recipients are masked unless it does, or has `recipients:read`.
    """
    limit, cursor = page_query(query.names(query.FILTERS))
    wanted = query.filters(query.own_user(caller))
    try:
        is_open = sees_addresses(caller, caller.only_user)
        return _page(
            services().lists.notifications(caller.tenant_id, wanted, limit, cursor, shows_addresses=is_open)
        )
    except ValueError as error:
        raise _no_cursor() from error


@route(
    blueprint,
    "GET",
    "/notifications/stats",
    operation(
        "Count notifications",
        {HTTPStatus.OK: ("By status, channel, category and day.", StatisticsView)},
        scope=READ,
        errors=(*_ERRORS, HTTPStatus.UNPROCESSABLE_ENTITY),
        query=(query.USER, *query.RANGE),
    ),
)
@requires(READ, users=True)
def count_notifications(caller: Caller) -> Response:
    """Of the last week unless told, and of at most 90 days. For a whole tenant a range may hold too much: 422."""
    no_query({"user_id", "from", "to"})
    sums = services().statistics(
        caller.tenant_id, query.own_user(caller), query.instant("from"), query.instant("to")
    )
    return _json(sums)


@route(
    blueprint,
    "GET",
    "/notifications/unread-count",
    operation(
        "Count what is unread",
        {HTTPStatus.OK: ("Items of the inbox, neither read nor archived.", UnreadCount)},
        scope=READ,
        errors=_ERRORS,
        query=(query.USER,),
    ),
)
@requires(READ, users=True)
def count_unread(caller: Caller) -> Response:
    """It is cached, and true all the same: whatever changes it takes it out of the cache."""
    no_query({"user_id"})
    user_id = query.needed(query.own_user(caller))
    return _json({"user_id": user_id, "unread": services().inbox.unread(caller.tenant_id, user_id)})


@route(
    blueprint,
    "GET",
    "/inbox",
    operation(
        "Read an inbox",
        {HTTPStatus.OK: ("Newest first.", InboxList), **etags.UNCHANGED},
        scope=READ,
        errors=_ERRORS,
        query=(query.USER, *query.INBOX, *query.PAGE),
    ),
)
@requires(READ, users=True)
def read_inbox(caller: Caller) -> Response:
    """What was delivered in-app and is not archived; a token of the role USER reads its own."""
    page = page_query({"user_id", *query.names(query.INBOX)})
    return _inbox(caller, query.needed(query.own_user(caller)), page)


@route(
    blueprint,
    "GET",
    "/users/<user_id>/inbox",
    operation(
        "Read a user's inbox",
        {HTTPStatus.OK: ("Newest first.", InboxList), **etags.UNCHANGED},
        scope=READ,
        errors=_ERRORS,
        query=(*query.INBOX, *query.PAGE),
    ),
)
@requires(READ, users=True)
def read_inbox_of_user(user_id: str, caller: Caller) -> Response:
    """As `GET /v1/inbox`. A user's id with a slash in it goes there, in the query."""
    page = page_query(query.names(query.INBOX))
    query.refuse_unstorable("user_id", user_id)
    refuse_others(caller, user_id)
    return _inbox(caller, user_id, page)


def _inbox(caller: Caller, user_id: str, page: tuple[int, str | None]) -> Response:
    wanted = query.filters(user_id)
    try:
        return _page(services().lists.inbox(caller.tenant_id, wanted, *page))
    except ValueError as error:
        raise _no_cursor() from error


def _page(listed: Listed) -> Response:
    return etags.answered(orjson.dumps({"data": listed.data, "next_cursor": listed.next_cursor}))


def _no_cursor() -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_CURSOR", "The cursor is not one of this list.")


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), mimetype=JSON)
