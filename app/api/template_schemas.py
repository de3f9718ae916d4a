"""The shapes of `/v1/templates`: what comes in, validated, and what is answered.

What a body says is checked here only as far as JSON goes; whether the templates in it can be kept is for the use
case, which answers 422 with the field and the line.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from app.api.schemas import Strict, bounded_object, one_line_text
from app.rendering.limits import SOURCE_CHARACTERS
from app.services.templates.draft import Draft
from app.services.templates.preview import Wish

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
"""What a template may be called; it is part of an address."""

_VARIABLES = 100
_LOCALES = 50
_TAG_LIMIT = 35

Tag = Annotated[str, Field(min_length=2, max_length=_TAG_LIMIT, description="BCP 47, such as pt-BR.")]
Source = Annotated[str, Field(min_length=1, max_length=SOURCE_CHARACTERS)]
_EXAMPLE: JsonDict = {
    "example": {
        "category": "orders",
        "default_locale": "en",
        "variables": [
            {"name": "name", "type": "string"},
            {"name": "total", "type": "number", "required": False, "description": "In euros."},
        ],
        "bodies": {
            "en": {
                "EMAIL": {
                    "subject": "Your order, {{ name }}",
                    "html": "<p>Hello {{ name }}, that makes <b>{{ total|currency('EUR') }}</b>.</p>",
                },
                "SMS": {"text": "{{ name }}, your order is on its way."},
            },
            "pt": {"SMS": {"text": "{{ name }}, seu pedido está a caminho."}},
        },
    }
}


class TemplateVariable(Strict):
    """A value that a notification brings. Without a type it may be anything."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    required: bool = True
    type: Literal["string", "number", "boolean", "date", "datetime", "list", "object"] | None = None
    description: Annotated[str, Field(max_length=500)] = ""


class EmailBody(Strict):
    """A subject, and a text or HTML. Where the text is missing it is made from the HTML."""

    subject: Source
    text: Source | None = None
    html: Source | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.text is None and self.html is None:
            raise PydanticCustomError("source", "needs a text or HTML")
        return self


class SmsBody(Strict):
    """The text of an SMS."""

    text: Source


class TitledBody(Strict):
    """A headline and a text, of a push or in the inbox."""

    title: Source
    body: Source


class ChannelBodies(Strict):
    """What each channel says, in one language."""

    EMAIL: EmailBody | None = None
    SMS: SmsBody | None = None
    PUSH: TitledBody | None = None
    IN_APP: TitledBody | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if not any(value is not None for _, value in self):
            raise PydanticCustomError("source", "needs a body for at least one channel")
        return self


class TemplateContent(Strict):
    """What a version of a template says."""

    default_locale: Tag
    variables: Annotated[list[TemplateVariable], Field(max_length=_VARIABLES, default_factory=list)]
    bodies: Annotated[dict[Tag, ChannelBodies], Field(min_length=1, max_length=_LOCALES)]

    def draft(self, category: str | None = None) -> Draft:
        """Return what the use cases take."""
        return Draft(
            self.default_locale,
            [each.model_dump() for each in self.variables],
            {tag: body.model_dump(exclude_none=True) for tag, body in self.bodies.items()},
            category,
        )


class TemplateRequest(TemplateContent):
    """A template: its category, and what its next version says."""

    model_config = ConfigDict(json_schema_extra=_EXAMPLE)

    category: Annotated[str, Field(min_length=1, max_length=64)] | None = None

    @field_validator("category")
    @classmethod
    def _is_readable(cls, value: str | None) -> str | None:
        return None if value is None else one_line_text(value)


class TemplateChoice(Strict):
    """Which version is current."""

    current_version: Annotated[int, Field(ge=1, le=2**31 - 1)]


class PreviewRequest(Strict):
    """For whom to show it, and with what. `template` is a content that is not kept yet."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"locale": "pt-BR", "payload": {"name": "Ana"}, "time_zone": "UTC"}}
    )

    locale: Tag | None = None
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    payload: Annotated[dict[str, Any], Field(default_factory=dict)]
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    template: TemplateContent | None = None

    @field_validator("payload")
    @classmethod
    def _is_bounded(cls, value: dict[str, Any]) -> dict[str, Any]:
        return bounded_object(value)

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.version is not None and self.template is not None:
            raise PydanticCustomError("source", "takes either version or template")
        return self

    def wish(self) -> Wish:
        """Return what the use case takes."""
        draft = None if self.template is None else self.template.draft()
        return Wish(self.locale, self.payload, self.time_zone, self.version, draft)


class TemplateVersionView(BaseModel):
    """A version; it never changes."""

    number: int
    created_by: str
    created_at: datetime
    default_locale: str
    variables: list[TemplateVariable]
    bodies: dict[str, ChannelBodies]


class _TemplateHead(BaseModel):
    name: str
    category: str | None
    current_version: int
    latest_version: int
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


class TemplateView(_TemplateHead):
    """A template with its current version."""

    version: TemplateVersionView


class TemplateListed(_TemplateHead):
    """A template in a list, with the languages of its current version."""

    default_locale: str
    locales: list[str]


class TemplateList(BaseModel):
    """A page of templates."""

    data: list[TemplateListed]
    next_cursor: str | None


class TemplateVersionList(BaseModel):
    """A page of versions."""

    data: list[TemplateVersionView]
    next_cursor: str | None


class SegmentsView(BaseModel):
    """What an SMS costs."""

    alphabet: Literal["GSM-7", "UCS-2"]
    units: int
    count: int


class ChannelPreview(BaseModel):
    """What a channel would carry. `title` and `body` are null where nothing could be rendered."""

    locale: str
    title: str | None
    body: str | None
    html: str | None = None
    segments: SegmentsView | None = None
    bytes: int | None = None


class PreviewWarning(BaseModel):
    """Something to think about before it is sent."""

    code: Literal[
        "VARIABLE_MISSING",
        "VARIABLE_MISFIT",
        "LOCALE_FALLBACK",
        "RENDERING_FAILED",
        "HTML_CHANGED",
        "SMS_SEGMENTS",
        "SMS_ALPHABET",
        "PUSH_TOO_LARGE",
    ]
    channel: Literal["PUSH", "EMAIL", "SMS", "IN_APP"] | None
    message: str


class PreviewView(BaseModel):
    """A template as a reader would get it. `version` is null for a content that is not kept."""

    name: str
    version: int | None
    locale: str
    channels: Mapping[str, ChannelPreview]
    warnings: list[PreviewWarning]
