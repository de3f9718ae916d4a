"""The shapes of categories, preferences and the suppression list, in requests and in answers."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.domain import locales
from app.domain.preferences import DISTURBING, QuietWish, TenantPolicy
from app.domain.quiet_hours import InvalidWindowError, Window
from app.services.preferences import UNCHANGED
from app.services.refusal import Problem, Refused
from app.services.zone_names import check_zone

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
NAME_LIMIT = 64
_CHOICES_LIMIT = 200
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"

ChannelKey = Literal["PUSH", "EMAIL", "SMS", "IN_APP", "*"]
ChannelKeyName = Literal["PUSH", "EMAIL", "SMS", "IN_APP"]
AddressedChannel = Literal["PUSH", "EMAIL", "SMS"]
ReasonName = Literal["BOUNCE", "COMPLAINT", "OPT_OUT", "MANUAL"]
Switches = dict[ChannelKey, StrictBool]
TimeOfDay = Annotated[str, Field(pattern=_TIME, description="HH:MM by the clocks on the wall.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def name_problem(text: str) -> str | None:
    """Return what is wrong with the name of a category that is declared, or None."""
    if not 0 < len(text) <= NAME_LIMIT:
        return f"must be 1 to {NAME_LIMIT} characters"
    if _CONTROL.search(text) or not text.strip():
        return "must be visible text without line breaks or control characters"
    if "/" in text or text in {".", "..", "*"}:
        return "must be one segment of a path, and not *, which stands for every category"
    return None


class QuietWindow(_Strict):
    """From `start` until just before `end`, each day, in the zone that counts. It may cross midnight."""

    start: TimeOfDay
    end: TimeOfDay


class TenantDefaults(_Strict):
    """What holds where neither a category nor a person says anything. What is left out is at our default."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "time_zone": "Europe/Berlin",
                "locale": "de",
                "quiet_window": {"start": "22:00", "end": "08:00"},
                "channels": {"SMS": False},
                "quiet_hours": {"PUSH": True},
            }
        }
    )

    time_zone: Annotated[str, Field(max_length=64, description="An IANA name, such as Europe/Berlin.")] = "UTC"
    locale: Annotated[str, Field(max_length=35, description="BCP 47, such as pt-BR.")] = "en"
    quiet_window: QuietWindow = QuietWindow(start="22:00", end="08:00")
    channels: Annotated[Switches, Field(description="On or off for everybody who chose nothing.")] = {}
    quiet_hours: Annotated[Switches, Field(description="Whether messages wait for the end of the window.")] = {}

    def policy(self) -> TenantPolicy:
        """Return what the use case takes; raise Refused for a zone, a locale or a window that is none."""
        check_zone("time_zone", self.time_zone)
        try:
            locale = locales.locale(self.locale)
        except locales.UnknownLocaleError as error:
            raise Refused(
                "DOMAIN_LOCALE_UNKNOWN", "The locale is none.", [Problem("locale", str(error))]
            ) from error
        window = _window("quiet_window", self.quiet_window.start, self.quiet_window.end)
        return TenantPolicy(_plain(self.channels), _plain(self.quiet_hours), window, self.time_zone, locale)


class CategoryRequest(_Strict):
    """What a tenant says about one category. What is left out is at our default for a category of that name."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"mandatory": False, "channels": {"SMS": False}, "quiet_hours": {"PUSH": True}}
        }
    )

    mandatory: Annotated[bool, Field(description="Cannot be switched off, and keeps no quiet hours.")] | None = (
        None
    )
    channels: Switches = {}
    quiet_hours: Switches = {}


class QuietHours(_Strict):
    """A person's own quiet hours. Without times the tenant's window, without categories all of them."""

    on: Annotated[StrictBool, Field(description="False: no quiet hours at all, whatever the tenant says.")] = True
    start: TimeOfDay | None = None
    end: TimeOfDay | None = None
    channels: Annotated[list[ChannelKeyName], Field(max_length=4)] | None = None
    categories: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=50)] | None
    ) = None

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.start is None) != (self.end is None):
            raise PydanticCustomError("window", "needs both start and end, or neither")
        return self

    @field_validator("categories")
    @classmethod
    def _are_names(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and any(_CONTROL.search(name) or not name.strip() for name in value):
            raise PydanticCustomError("text", "must be names of categories")
        return value

    def wish(self) -> QuietWish:
        """Return what the use case takes; raise Refused for a window that is none."""
        window = None
        if self.start is not None and self.end is not None:
            window = _window("quiet_hours", self.start, self.end)
        return QuietWish(
            self.on,
            window,
            DISTURBING if self.channels is None else frozenset(self.channels),
            None if self.categories is None else frozenset(self.categories),
        )


_PREFERENCES = ConfigDict(
    json_schema_extra={
        "example": {
            "choices": {"marketing": {"*": False, "EMAIL": True}, "*": {"SMS": False}},
            "quiet_hours": {"start": "21:30", "end": "07:30"},
        }
    }
)


class PreferencesRequest(_Strict):
    """All that a person chooses, by category, or `*`, and then by channel, or `*`."""

    model_config = _PREFERENCES

    choices: Annotated[dict[str, Switches], Field(max_length=_CHOICES_LIMIT)] = {}
    quiet_hours: QuietHours | None = None

    @field_validator("choices")
    @classmethod
    def _are_named(cls, value: dict[str, Switches]) -> dict[str, Switches]:
        _check_names(value)
        return value

    def wishes(self) -> tuple[dict[str, dict[str, bool]], QuietWish | None]:
        """Return what the use case takes; raise Refused for a window that is none."""
        choices = {category: _plain(said) for category, said in self.choices.items()}
        return choices, None if self.quiet_hours is None else self.quiet_hours.wish()


class PreferencesPatch(_Strict):
    """Some choices. `null` takes a word back: about a channel, a whole category, or the quiet hours."""

    model_config = _PREFERENCES

    choices: Annotated[
        dict[str, dict[ChannelKey, StrictBool | None] | None], Field(max_length=_CHOICES_LIMIT)
    ] = {}
    quiet_hours: QuietHours | None = None

    @field_validator("choices")
    @classmethod
    def _are_named(
        cls, value: dict[str, dict[ChannelKey, StrictBool | None] | None]
    ) -> dict[str, dict[ChannelKey, StrictBool | None] | None]:
        _check_names(value)
        return value

    def wishes(self) -> tuple[dict[str, dict[str, bool | None] | None], QuietWish | None]:
        """Return what the use case takes; raise Refused for a window that is none."""
        choices: dict[str, dict[str, bool | None] | None] = {
            category: None if said is None else {str(key): value for key, value in said.items()}
            for category, said in self.choices.items()
        }
        if "quiet_hours" not in self.model_fields_set:
            return choices, UNCHANGED
        return choices, None if self.quiet_hours is None else self.quiet_hours.wish()


class SuppressionRequest(_Strict):
    """An address that nothing is to be sent to."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"channel": "EMAIL", "address": "gone@sandbox.example.com", "reason": "MANUAL"}
        }
    )

    channel: AddressedChannel
    address: Annotated[str, Field(min_length=1, max_length=4096)]
    reason: ReasonName = "MANUAL"
    note: Annotated[str, Field(min_length=1, max_length=500)] | None = None

    @field_validator("note")
    @classmethod
    def _is_readable(cls, value: str | None) -> str | None:
        if value is not None and _CONTROL.search(value):
            raise PydanticCustomError("text", "must be one line of visible text")
        return value


def _window(field: str, start: str, end: str) -> Window:
    try:
        return Window.parse(start, end)
    except InvalidWindowError as error:
        raise Refused(
            "DOMAIN_QUIET_WINDOW_INVALID", "The quiet hours are none.", [Problem(field, str(error))]
        ) from error


def _plain(switches: Mapping[ChannelKey, bool]) -> dict[str, bool]:
    return {str(key): value for key, value in switches.items()}


def _check_names(choices: Mapping[str, object]) -> None:
    for name in choices:
        if not 0 < len(name) <= NAME_LIMIT or _CONTROL.search(name) or not name.strip():
            raise PydanticCustomError("text", "each category is 1 to 64 visible characters")


class CategoryView(BaseModel):
    """A category and what holds for it. One that is not `declared` is at our defaults."""

    name: str
    declared: bool
    mandatory: bool
    channels: dict[str, bool]
    quiet_hours: dict[str, bool]


class CategoryList(BaseModel):
    """A page of declared categories."""

    data: list[CategoryView]
    next_cursor: str | None


class TenantDefaultsView(BaseModel):
    """What holds where nobody says anything else."""

    time_zone: str
    locale: str
    quiet_window: QuietWindow
    channels: dict[str, bool]
    quiet_hours: dict[str, bool]


class ChannelEffect(BaseModel):
    """What comes of all choices for one channel, and which rule decided. HIGH keeps no quiet hours."""

    allowed: bool
    rule: str
    quiet_hours: QuietWindow | None
    quiet_rule: str


class CategoryEffect(BaseModel):
    """What comes of all choices for one category; `*` stands for every category that is not listed."""

    category: str
    mandatory: bool
    channels: dict[str, ChannelEffect]


class QuietHoursView(BaseModel):
    """A person's own quiet hours as stored."""

    on: bool
    start: str | None
    end: str | None
    channels: list[str]
    categories: list[str] | None


class PreferencesView(BaseModel):
    """What a person chose and what comes of it. `time_zone` is the one of the person, without a device's."""

    user_id: str
    choices: dict[str, dict[str, bool]]
    quiet_hours: QuietHoursView | None
    time_zone: str
    updated_at: datetime | None
    effective: list[CategoryEffect]


class SuppressionView(BaseModel):
    """An address on the list, masked unless the caller has `recipients:read`."""

    id: str
    channel: AddressedChannel
    address: str
    reason: ReasonName
    source: str
    note: str | None
    created_at: datetime


class SuppressionList(BaseModel):
    """A page of the suppression list."""

    data: list[SuppressionView]
    next_cursor: str | None


REQUESTS = (TenantDefaults, CategoryRequest, PreferencesRequest, PreferencesPatch, SuppressionRequest)
ANSWERS = (
    CategoryView,
    CategoryList,
    TenantDefaultsView,
    PreferencesView,
    SuppressionView,
    SuppressionList,
)
