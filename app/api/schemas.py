"""The shapes of requests: they validate what comes in, and the OpenAPI document is made from them.

A body that does not fit is 400. What fits but cannot be done is for the use case to refuse, with 422. Types are
strict: a boolean is true or false, a number is no text. pydantic's compiled validator takes
12 µs a notification, marshmallow 110.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, Self, TypeVar

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from app.api.errors import ApiError
from app.domain.kinds import Channel, Priority
from app.services.accept.submission import Fallback, LocalTime, Submission
from app.services.manage_keys import LIFETIME_LIMIT_SECONDS, OVERLAP_LIMIT_SECONDS, OVERLAP_SECONDS
from app.services.refusal import Problem, Refused
from app.services.zone_names import check_zone

Model = TypeVar("Model", bound=BaseModel)

ChannelName = Literal["PUSH", "EMAIL", "SMS", "IN_APP"]
PriorityName = Literal["HIGH", "NORMAL", "LOW"]

_CHANNELS = len(Channel)
_EXPIRES_LIMIT = 30 * 86_400
_CHAIN_LEAST = 2
_AFTER_LIMIT = 7 * 86_400
OBJECT_LIMIT_BYTES = 32_768
_OBJECT_DEPTH = 16
_METADATA_LIMIT_BYTES = 8_192
_METADATA_KEYS = 50
_HTML_LIMIT = 100_000
_NUMBER_LIMIT = 2.0**63
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")

_YEARS = range(1970, 9999)
_WALL_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$"

_EXAMPLE: JsonDict = {
    "example": {
        "user_id": "42",
        "category": "security",
        "priority": "HIGH",
        "channels": ["SMS", "EMAIL"],
        "content": {"title": "Your code", "body": "123456 is your code. It is valid for 5 minutes."},
        "recipients": {"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com"},
        "expires_in": 300,
        "metadata": {"order": "123"},
    }
}


def one_line_text(value: str) -> str:
    """Return a visible text of one line; for validators, so it raises what pydantic turns into a 400."""
    if _CONTROL.search(value) or not value.strip():
        raise PydanticCustomError("text", "must be visible text without line breaks or control characters")
    return value


def bounded_object(value: dict[str, Any]) -> dict[str, Any]:
    """Return a payload that is neither too large nor too deep; for validators."""
    if _depth(value) > _OBJECT_DEPTH or len(orjson.dumps(value)) > OBJECT_LIMIT_BYTES:
        raise PydanticCustomError(
            "size", f"must be at most {OBJECT_LIMIT_BYTES} bytes and {_OBJECT_DEPTH} levels deep"
        )
    return value


class Strict(BaseModel):
    """A request's shape: no unknown fields, no types but those named."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Content(Strict):
    """What is sent when no template is named. Line breaks are allowed in the body only.

    HTML is for e-mail. It is cleaned, and where there is no body a plain one is made from it.
    """

    title: Annotated[str, Field(max_length=255, description="Subject of an e-mail, headline of a push.")] = ""
    body: Annotated[str, Field(max_length=10_000)] = ""
    html: Annotated[str, Field(min_length=1, max_length=_HTML_LIMIT)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.html is None and "body" not in self.model_fields_set:
            raise PydanticCustomError("missing", "needs a body, or HTML for an e-mail")
        return self


class Recipients(Strict):
    """Where to send, per channel. A phone number begins with + and its country code."""

    EMAIL: Annotated[str, Field(max_length=320)] | None = None
    SMS: Annotated[str, Field(max_length=64)] | None = None
    PUSH: Annotated[str, Field(max_length=4096)] | None = None


class FallbackRequest(Strict):
    """Channels to be tried in this order, each when the one before failed."""

    channels: list[ChannelName]
    after_seconds: (
        Annotated[
            int,
            Field(
                ge=1, le=_AFTER_LIMIT, description="Also go on when one is not delivered after so many seconds."
            ),
        ]
        | None
    ) = None


class LocalTimeRequest(Strict):
    """A time by the clocks on the wall. One that they skip is the instant after, of one shown twice the first.

    Without a zone it is the user's, or else the tenant's.
    """

    at: Annotated[str, Field(max_length=32, pattern=_WALL_TIME, description="Without an offset.")]
    time_zone: Annotated[str, Field(max_length=64, description="An IANA name, such as Europe/Berlin.")] | None = (
        None
    )

    def local(self) -> LocalTime:
        """Return what the use case takes; raise Refused for an unknown zone, ApiError for a time that is none."""
        if self.time_zone is not None:
            check_zone("scheduled_local.time_zone", self.time_zone)
        with suppress(ValueError):
            at = datetime.fromisoformat(self.at)
            # Near the ends of the calendar a zone's offset leads out of it.
            if at.year in _YEARS:
                return LocalTime(at, self.time_zone)
        raise _misfit([Problem("scheduled_local.at", "must be a time such as 2026-03-29T02:30:00")])


class NotificationRequest(Strict):
    """A notification to be accepted: to one user, over one or more channels."""

    model_config = ConfigDict(json_schema_extra=_EXAMPLE)

    user_id: Annotated[StrictStr, Field(min_length=1, max_length=255)] | StrictInt
    category: Annotated[str, Field(min_length=1, max_length=64)]
    priority: PriorityName = "NORMAL"
    channels: Annotated[
        list[ChannelName], Field(max_length=_CHANNELS, description="All at once; may be left out with fallback.")
    ] = []
    fallback: (
        Annotated[
            list[ChannelName] | FallbackRequest,
            Field(description="Channels to be tried one after the other, as a list or with after_seconds."),
        ]
        | None
    ) = None
    template: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    payload: Annotated[dict[str, Any], Field(description="Values for the template.")] | None = None
    locale: (
        Annotated[
            str,
            Field(min_length=2, max_length=35, description="The reader's language; the user's own if absent."),
        ]
        | None
    ) = None
    content: Content | None = None
    recipients: Recipients | None = None
    scheduled_at: (
        Annotated[
            str,
            Field(
                max_length=64, json_schema_extra={"format": "date-time"}, description="RFC 3339 with an offset."
            ),
        ]
        | None
    ) = None
    scheduled_local: LocalTimeRequest | None = None
    expires_in: (
        Annotated[
            int,
            Field(
                ge=1,
                le=_EXPIRES_LIMIT,
                description="Seconds from acceptance, or from scheduled_at; no call after.",
            ),
        ]
        | None
    ) = None
    ordering: (
        Annotated[
            Literal["user"],
            Field(description="Keep the order of the user's ordered notifications on each channel."),
        ]
        | None
    ) = None
    supersede_key: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=128,
                description="A newer notification of the user with this key takes the place of older unsent ones.",
            ),
        ]
        | None
    ) = None
    metadata: (
        dict[
            Annotated[str, Field(min_length=1, max_length=64)],
            StrictStr | StrictBool | StrictInt | StrictFloat | None,
        ]
        | None
    ) = None

    @field_validator("user_id", "category", "supersede_key")
    @classmethod
    def _is_one_line(cls, value: str | int | None) -> str | int | None:
        return one_line_text(value) if isinstance(value, str) else value

    @field_validator("channels")
    @classmethod
    def _are_distinct(cls, value: list[ChannelName]) -> list[ChannelName]:
        if len(set(value)) != len(value):
            raise PydanticCustomError("distinct", "must name each channel once")
        return value

    @field_validator("payload")
    @classmethod
    def _is_bounded(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return bounded_object(value) if value else value

    @field_validator("metadata")
    @classmethod
    def _is_small(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if not value:
            return value
        if len(value) > _METADATA_KEYS or len(orjson.dumps(value)) > _METADATA_LIMIT_BYTES:
            raise PydanticCustomError(
                "size", f"must be at most {_METADATA_KEYS} keys and {_METADATA_LIMIT_BYTES} bytes"
            )
        if any(isinstance(each, float) and abs(each) >= _NUMBER_LIMIT for each in value.values()):
            raise PydanticCustomError("range", "holds a number that is too large to be kept exactly")
        return value

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.template is None) == (self.content is None):
            raise PydanticCustomError("source", "needs either template or content")
        if self.scheduled_at is not None and self.scheduled_local is not None:
            raise PydanticCustomError("schedule", "takes either scheduled_at or scheduled_local")
        chain = self._fallback()
        named = [*self.channels, *(chain.channels if chain else ())]
        if not named:
            raise PydanticCustomError("channels", "needs channels or fallback")
        if len(set(named)) != len(named):
            raise PydanticCustomError("distinct", "channels and fallback must name each channel once")
        if chain is not None and len(chain.channels) < _CHAIN_LEAST:
            raise PydanticCustomError("fallback", "fallback needs two channels or more")
        if chain is not None and Channel.IN_APP in chain.channels[:-1]:
            raise PydanticCustomError("fallback", "IN_APP always arrives, so it can only be the last of fallback")
        return self

    def _fallback(self) -> Fallback | None:
        if self.fallback is None:
            return None
        asked = self.fallback if isinstance(self.fallback, list) else self.fallback.channels
        after = None if isinstance(self.fallback, list) else self.fallback.after_seconds
        return Fallback(tuple(map(Channel, asked)), after)

    def submission(self) -> Submission:
        """Return what the use case takes; raise Refused for what it could never do, ApiError for a broken time."""
        content = self.content or Content(body="")
        fallback = self._fallback()
        if content.html is not None and "EMAIL" not in {*self.channels, *(fallback.channels if fallback else ())}:
            raise _misfit([Problem("content.html", "is for the channel EMAIL")])
        if _CONTROL.search(content.title):
            raise Refused(
                "DOMAIN_CONTENT_INVALID",
                "A title is one line.",
                [Problem("content.title", "contains a line break or control character")],
            )
        return Submission(
            user_id=str(self.user_id),
            category=self.category,
            priority=Priority[self.priority],
            channels=tuple(Channel(channel) for channel in self.channels),
            title=content.title,
            body=content.body,
            html=content.html,
            template=self.template,
            locale=self.locale,
            recipients=_given(self.recipients),
            metadata=self.metadata or {},
            payload=self.payload or {},
            scheduled_at=None if self.scheduled_at is None else instant_of("scheduled_at", self.scheduled_at),
            expires_in=self.expires_in,
            scheduled_local=None if self.scheduled_local is None else self.scheduled_local.local(),
            supersede_key=self.supersede_key,
            fallback=fallback,
            is_ordered=self.ordering is not None,
        )


class ApiKeyRequest(Strict):
    """A key for one service, with no more scopes than it needs."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"name": "shop", "scopes": ["notifications:write"], "expires_in": 31_536_000}
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=64, description="Whose key it is, for people.")]
    scopes: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(min_length=1, max_length=50)]
    expires_in: (
        Annotated[
            int, Field(ge=1, le=LIFETIME_LIMIT_SECONDS, description="Seconds; until it is revoked if absent.")
        ]
        | None
    ) = None

    @field_validator("name")
    @classmethod
    def _is_readable(cls, value: str) -> str:
        return one_line_text(value)


class ApiKeyRotation(Strict):
    """How long the old key goes on beside the new one."""

    overlap_seconds: Annotated[int, Field(ge=0, le=OVERLAP_LIMIT_SECONDS)] = OVERLAP_SECONDS


def validate(model: type[Model], body: Any) -> Model:
    """Return `body` as a `model`; raise ApiError 400 naming each field that does not fit."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems = [
            Problem(".".join(map(str, each["loc"])), each["msg"])
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    raise _misfit(problems[:20])


def _misfit(problems: Sequence[Problem]) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, "VALIDATION_BODY", "The body does not fit the schema.", problems)


def _given(recipients: Recipients | None) -> Mapping[str, str]:
    return {} if recipients is None else {name: value for name, value in recipients if value is not None}


def instant_of(field: str, text: str) -> datetime:
    """Return an RFC 3339 instant in UTC. An offset is required: what a local time means is not for us to guess."""
    if _RFC_3339.fullmatch(text):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    problem = Problem(field, "must be RFC 3339 with an offset, such as 2026-07-01T09:00:00Z")
    raise _misfit([problem])


def _depth(value: Any) -> int:
    """Return how deep objects and lists are nested, counting no further than needed to refuse."""
    level, layer = 0, [value]
    while layer and level <= _OBJECT_DEPTH:
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        level += 1
    return level
