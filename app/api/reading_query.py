"""The query arguments of lists and statistics, and whose things they are about."""

import re
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import TypeVar

from flask import request

from app.api.auth import refuse_others
from app.api.errors import ApiError
from app.api.openapi import Query
from app.domain.callers import Caller
from app.domain.kinds import Channel
from app.domain.summary import NotificationStatus
from app.services.listing import Filter
from app.services.refusal import Problem

Choice = TypeVar("Choice", bound=StrEnum)

_TEXT_LIMIT = 255
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+ -]\d\d:\d\d)")

_INSTANT = {"type": "string", "format": "date-time"}
_TEXT = {"type": "string", "minLength": 1, "maxLength": _TEXT_LIMIT}
USER = Query("user_id", "Whose; a token of the role USER may leave it out, for its own.", _TEXT)
RANGE = (
    Query("from", "Accepted at or after this instant, RFC 3339 with an offset.", _INSTANT),
    Query("to", "Accepted before this instant.", _INSTANT),
)
CATEGORY = Query("category", "Of this category only.", _TEXT)
UNREAD = Query("unread", "In the inbox and not read (true), or read (false).", {"type": "boolean"})
PAGE = (
    Query("limit", "Entries on a page, 20 unless asked.", {"type": "integer", "minimum": 1, "maximum": 100}),
    Query("cursor", "`next_cursor` of the page before, with the same `user_id`.", {"type": "string"}),
)
FILTERS = (
    USER,
    CATEGORY,
    Query("channel", "With a delivery on this channel.", {"type": "string", "enum": list(Channel)}),
    Query("status", "Of this status.", {"type": "string", "enum": list(NotificationStatus)}),
    UNREAD,
    *RANGE,
)
INBOX = (
    CATEGORY,
    UNREAD,
    Query("archived", "The archived items instead of the others.", {"type": "boolean"}),
    *RANGE,
)


def names(queries: Collection[Query]) -> set[str]:
    """Return the names of arguments."""
    return {each.name for each in queries}


def filters(user_id: str | None) -> Filter:
    """Return what the query narrows a list to; raise ApiError 400 for what cannot be read."""
    channel, status = _choice("channel", Channel), _choice("status", NotificationStatus)
    return Filter(
        user_id=user_id,
        category=text("category"),
        channel=channel,
        status=status,
        unread=_flag("unread"),
        archived=_flag("archived") or False,
        since=instant("from"),
        until=instant("to"),
    )


def own_user(caller: Caller) -> str | None:
    """Return the `user_id` of the query: a person's own where it is left out; raise ApiError 403 for another's."""
    return held(caller, text("user_id"))


def held(caller: Caller, user_id: str | None) -> str | None:
    """Return whom a request is about: `user_id`, or the caller itself when it may act for nobody else."""
    if user_id is None:
        return caller.only_user
    refuse_others(caller, user_id)
    return user_id


def needed(user_id: str | None) -> str:
    """Return `user_id`; raise ApiError 400 where a caller who may act for many named none."""
    if user_id is None:
        raise refusal("user_id", "is needed: the caller is no person")
    return user_id


def text(name: str) -> str | None:
    """Return an argument that is text which can be stored; raise ApiError."""
    value = request.args.get(name)
    if value is not None:
        refuse_unstorable(name, value)
    return value


def refuse_unstorable(name: str, value: str) -> None:
    """Raise ApiError for text that is empty, too long, or cannot be stored."""
    if not 0 < len(value) <= _TEXT_LIMIT or "\0" in value or not _is_encodable(value):
        raise refusal(name, f"must be 1 to {_TEXT_LIMIT} characters that can be stored")


def instant(name: str) -> datetime | None:
    """Return an argument that is an instant, in UTC; raise ApiError."""
    value = request.args.get(name)
    return None if value is None else as_instant(name, value)


def as_instant(name: str, value: str) -> datetime:
    """Return an RFC 3339 instant in UTC, of 1970 or later; raise ApiError."""
    if _RFC_3339.fullmatch(value):
        # A plus sign that was not escaped arrives as a space.
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(value.upper().replace(" ", "+")).astimezone(UTC)
            if moment >= _EARLIEST:
                return moment
    raise refusal(name, "must be RFC 3339 with an offset, such as 2026-07-01T09:00:00Z")


def refusal(name: str, message: str) -> ApiError:
    """Return the refusal of one argument."""
    return ApiError(
        HTTPStatus.BAD_REQUEST, "VALIDATION_QUERY", "The query cannot be understood.", [Problem(name, message)]
    )


def _flag(name: str) -> bool | None:
    value = request.args.get(name)
    if value not in {None, "true", "false"}:
        raise refusal(name, "must be true or false")
    return None if value is None else value == "true"


def _choice(name: str, kind: type[Choice]) -> Choice | None:
    value = request.args.get(name)
    if value is None:
        return None
    if value not in list(kind):
        raise refusal(name, f"must be one of {', '.join(kind)}")
    return kind(value)


def _is_encodable(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)
