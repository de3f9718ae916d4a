"""The shapes of users and devices, in requests and in answers."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from app.api.errors import ApiError
from app.api.schemas import validate
from app.domain import locales, zones
from app.services.refusal import Refused
from app.services.user_changes import ERASED_PREFIX, FIELDS, UserChange, normalised

ID_LIMIT = 255
BULK_LIMIT = 1000
ATTRIBUTES_LIMIT_BYTES = 16_384
ATTRIBUTES_DEPTH = 8
_NUMBER_LIMIT = 2.0**63
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")

StatusName = Literal["ACTIVE", "INACTIVE", "SUSPENDED"]
PlatformName = Literal["IOS", "ANDROID", "WEB"]
Zone = Annotated[str, Field(max_length=64, description="An IANA name, such as Europe/Berlin.")]


def id_problem(text: str) -> str | None:
    """Return what is wrong with a user's id, or None."""
    if not 0 < len(text) <= ID_LIMIT:
        return f"must be 1 to {ID_LIMIT} characters"
    if _CONTROL.search(text) or not text.strip():
        return "must be visible text without line breaks or control characters"
    if "/" in text or text in {".", ".."}:
        return "must be one segment of a path: without a slash, and neither . nor .."
    if text.startswith(ERASED_PREFIX):
        return f"begins with {ERASED_PREFIX}, which stands for erased users"
    return None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def _zone(value: str | None) -> str | None:
    if value is not None and value not in zones.zone_names():
        raise PydanticCustomError("zone", "must be an IANA time zone, such as Europe/Berlin")
    return value


class UserFields(_Strict):
    """What is kept of a user. `region` is kept nowhere: it says how a national phone number is to be read."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "email": "ana@sandbox.example.com",
                "phone": "+447700900000",
                "locale": "pt-BR",
                "time_zone": "America/Sao_Paulo",
                "attributes": {"plan": "pro"},
            }
        }
    )

    status: StatusName = "ACTIVE"
    email: Annotated[str, Field(max_length=320)] | None = None
    phone: (
        Annotated[str, Field(max_length=64, description="E.164; as dialled, with `region` or a locale's.")] | None
    ) = None
    region: Annotated[str, Field(min_length=2, max_length=2, description="Two letters of ISO 3166-1.")] | None = (
        None
    )
    locale: Annotated[str, Field(max_length=35, description="BCP 47, such as pt-BR.")] | None = None
    time_zone: Zone | None = None
    attributes: Annotated[dict[str, Any], Field(description="Whatever templates and segments need.")] | None = None
    last_seen_at: (
        Annotated[
            str,
            Field(
                max_length=64, json_schema_extra={"format": "date-time"}, description="RFC 3339 with an offset."
            ),
        ]
        | None
    ) = None

    @field_validator("region")
    @classmethod
    def _is_region(cls, value: str | None) -> str | None:
        if value is not None and not locales.REGION.fullmatch(value):
            raise PydanticCustomError("region", "must be two capital letters of ISO 3166-1, such as DE")
        return value

    @field_validator("locale")
    @classmethod
    def _is_locale(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            return locales.locale(value)
        except locales.UnknownLocaleError as error:
            raise PydanticCustomError("locale", "is {reason}", {"reason": str(error)}) from error

    _is_zone = field_validator("time_zone")(_zone)

    @field_validator("attributes")
    @classmethod
    def _is_bounded(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value:
            _check_attributes(value)
        return value

    @field_validator("last_seen_at")
    @classmethod
    def _is_instant(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if _RFC_3339.fullmatch(value):
            with suppress(ValueError, OverflowError):
                return datetime.fromisoformat(value.upper()).astimezone(UTC).isoformat()
        raise PydanticCustomError("instant", "must be RFC 3339 with an offset, such as 2026-07-01T09:00:00Z")

    def change(self, user_id: str, *, replaces: bool = False) -> UserChange:
        """Return what is to become of the user; raise Refused for an address that is none."""
        given = {name: getattr(self, name) for name in FIELDS if name in self.model_fields_set}
        return UserChange(user_id, normalised(given, self.region), replaces)


class UserRow(UserFields):
    """One user of a bulk. What is left out stays as it is, `null` clears."""

    id: Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]

    @field_validator("id")
    @classmethod
    def _is_id(cls, value: str) -> str:
        if (problem := id_problem(value)) is not None:
            raise PydanticCustomError("id", "{problem}", {"problem": problem})
        return value


class UsersBulk(_Strict):
    """Up to 1,000 users at once. Each row stands alone: one that does not fit is named in the answer."""

    users: Annotated[list[Any], Field(min_length=1, max_length=BULK_LIMIT, json_schema_extra={"items": {}})]


class DeviceRequest(_Strict):
    """A device to be registered, or to be seen again."""

    model_config = ConfigDict(json_schema_extra={"example": {"platform": "IOS", "token": "sandbox:ok-ana-phone"}})

    platform: PlatformName
    token: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[\x21-\x7e]+$")]
    time_zone: Zone | None = None
    is_muted: bool | None = None

    _is_zone = field_validator("time_zone")(_zone)


class DeviceChange(_Strict):
    """What a person may change of a device. What is left out stays as it is."""

    time_zone: Zone | None = None
    is_muted: bool | None = None

    _is_zone = field_validator("time_zone")(_zone)

    @field_validator("is_muted")
    @classmethod
    def _is_said(cls, value: bool | None) -> bool:
        if value is None:
            raise PydanticCustomError("bool", "must be true or false")
        return value


def parse_row(row: Any) -> UserChange:
    """Return one row of a bulk as a change; raise ApiError or Refused saying what does not fit."""
    parsed = validate(UserRow, row)
    return parsed.change(parsed.id)


def reason(error: ApiError | Refused) -> dict[str, Any]:
    """Return why a row was refused, as the answer to a bulk says it."""
    return {
        "code": error.code,
        "message": error.message,
        "details": [{"field": each.field, "message": each.message} for each in error.problems],
    }


def _check_attributes(value: Mapping[str, Any]) -> None:
    """Refuse what would be too large to keep beside a user, or could not be given back as it was."""
    layer: list[Any] = [value]
    for _ in range(ATTRIBUTES_DEPTH):
        inner = [part for each in layer for part in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(part, float) and abs(part) >= _NUMBER_LIMIT for part in inner):
            raise PydanticCustomError("range", "holds a number that is too large to be kept exactly")
        layer = [part for part in inner if isinstance(part, dict | list)]
        if not layer:
            break
    if layer or len(orjson.dumps(value)) > ATTRIBUTES_LIMIT_BYTES:
        raise PydanticCustomError(
            "size", f"must be at most {ATTRIBUTES_LIMIT_BYTES} bytes and {ATTRIBUTES_DEPTH} levels deep"
        )


class UserView(BaseModel):
    """A user. Addresses are masked unless the caller is the user or has `recipients:read`."""

    id: str
    status: StatusName
    email: str | None
    phone: str | None
    locale: str | None
    time_zone: str | None
    attributes: dict[str, Any]
    last_seen_at: datetime | None
    created_at: datetime
    updated_at: datetime


class UserList(BaseModel):
    """A page of users."""

    data: list[UserView]
    next_cursor: str | None


class DeviceView(BaseModel):
    """A device that takes push messages. Its token is masked like an address."""

    id: str
    platform: PlatformName
    token: str
    time_zone: str | None
    is_muted: bool
    registered_at: datetime
    last_seen_at: datetime | None


class DeviceList(BaseModel):
    """All devices of a user, the one seen last first."""

    data: list[DeviceView]


class RowReason(BaseModel):
    """Why a row was refused."""

    code: str
    message: str
    details: list[dict[str, str]]


class BulkRow(BaseModel):
    """What became of one row of a bulk; `index` counts from 0."""

    index: int
    id: str | None
    status: Literal["created", "updated", "rejected"]
    error: RowReason | None


class BulkAnswer(BaseModel):
    """What became of every row of a bulk."""

    created: int
    updated: int
    rejected: int
    results: list[BulkRow]


class ErasureView(BaseModel):
    """An erasure. DONE when nothing personal of the user is left."""

    id: str
    status: Literal["RUNNING", "DONE"]
    notifications: int
    cancelled: int
    requested_at: datetime
    finished_at: datetime | None
