"""The shapes of batches: what is asked for, and what is answered."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from app.api import schemas
from app.api.schemas import ChannelName, NotificationRequest, PriorityName, Recipients
from app.domain.batches import Canary, Source
from app.domain.kinds import Channel, Priority
from app.services.batches.submission import BatchSubmission
from app.services.refusal import Problem, Refused

RECIPIENTS_LIMIT = 10_000
_CONDITIONS = 20
_VALUES = 100
_LOCALE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*")
_EXACT = 2.0**53

Scalar = Annotated[StrictStr, Field(max_length=255)] | StrictBool | StrictInt | StrictFloat
BatchStateName = Literal[
    "UPLOADING",
    "ACCEPTED",
    "RUNNING",
    "PAUSED",
    "CANARY_WAIT",
    "CANCELLING",
    "CANCELLED",
    "COMPLETED",
    "FAILED",
]


class BatchRecipient(schemas.Strict):
    """One of the people, and what is said to them beyond what is said to all."""

    user_id: Annotated[StrictStr, Field(min_length=1, max_length=255)] | StrictInt
    recipients: Recipients | None = None
    payload: dict[str, Any] | None = None
    locale: Annotated[str, Field(max_length=35)] | None = None


class AttributeCondition(schemas.Strict):
    """What an attribute of a user must be; all that is given must hold."""

    equals: Scalar | None = None
    is_in: Annotated[
        Annotated[list[Scalar], Field(min_length=1, max_length=_VALUES)] | None, Field(alias="in")
    ] = None
    exists: StrictBool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.equals is None and self.is_in is None and self.exists is None:
            raise PydanticCustomError("condition", "needs equals, in or exists")
        for value in (self.equals, *(self.is_in or ())):
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > _EXACT:
                raise PydanticCustomError("range", "holds a number that is too large to be compared exactly")
        return self


class Segment(schemas.Strict):
    """Which users it goes to: the ACTIVE ones that fit everything that is given."""

    locales: (
        Annotated[
            list[Annotated[str, Field(max_length=35)]],
            Field(min_length=1, max_length=50, description="`pt` means pt-BR too."),
        ]
        | None
    ) = None
    attributes: Annotated[dict[str, AttributeCondition], Field(max_length=_CONDITIONS)] | None = None
    seen_after: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})] | None = None
    seen_before: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})] | None = None
    has_address: Annotated[list[ChannelName], Field(min_length=1, max_length=len(Channel))] | None = None

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        if any(not _LOCALE.fullmatch(locale) for locale in self.locales or ()):
            raise PydanticCustomError("locale", "holds what is no locale")
        if any(not 0 < len(name) <= 64 for name in self.attributes or ()):  # noqa: PLR2004
            raise PydanticCustomError("attribute", "the name of an attribute has 1 to 64 characters")
        return self

    def stored(self) -> dict[str, Any]:
        """Return the filter as `app.db.segments` reads it; raise ApiError for a broken instant."""
        filled = self.model_dump(exclude_none=True, by_alias=True)
        for name in ("seen_after", "seen_before"):
            if name in filled:
                filled[name] = schemas.instant_of(f"segment.{name}", filled[name]).isoformat()
        return filled


class UploadRequest(schemas.Strict):
    """The list comes in pieces by `PUT …/rows`."""

    format: Literal["csv", "ndjson"]


class CanaryRequest(schemas.Strict):
    """A trial with the first ones. Give either how many, or which share."""

    percent: Annotated[StrictFloat | StrictInt, Field(gt=0, le=100)] | None = None
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_failure_rate: Annotated[
        StrictFloat | StrictInt,
        Field(ge=0, le=1, description="A greater share of failures among what has ended stops the rest."),
    ] = 0.05
    wait_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300

    @model_validator(mode="after")
    def _has_one_size(self) -> Self:
        if (self.percent is None) == (self.count is None):
            raise PydanticCustomError("canary", "needs either percent or count")
        return self

    def canary(self) -> Canary:
        """Return it as the use case takes it."""
        percent = None if self.percent is None else float(self.percent)
        return Canary(float(self.max_failure_rate), self.wait_seconds, percent, self.count)


class BatchRequest(schemas.Strict):
    """One message to many people: listed here, chosen by a segment, or uploaded afterwards."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "category": "news",
                "channels": ["PUSH", "EMAIL"],
                "content": {"title": "Summer sale", "body": "Everything is cheaper until Sunday."},
                "segment": {"locales": ["pt", "en"], "attributes": {"plan": {"in": ["gold", "silver"]}}},
                "canary": {"percent": 5, "max_failure_rate": 0.02, "wait_seconds": 300},
            }
        }
    )

    category: Annotated[str, Field(min_length=1, max_length=64)]
    priority: PriorityName = "LOW"
    channels: Annotated[list[ChannelName], Field(min_length=1, max_length=len(Channel))]
    template: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    payload: dict[str, Any] | None = None
    content: schemas.Content | None = None
    scheduled_at: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})] | None = None
    expires_in: Annotated[int, Field(ge=1, le=30 * 86_400)] | None = None
    metadata: dict[str, Any] | None = None
    recipients: Annotated[list[BatchRecipient], Field(min_length=1, max_length=RECIPIENTS_LIMIT)] | None = None
    segment: Segment | None = None
    upload: UploadRequest | None = None
    canary: CanaryRequest | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if sum(each is not None for each in (self.recipients, self.segment, self.upload)) != 1:
            raise PydanticCustomError("source", "needs one of recipients, segment and upload")
        return self

    def submission(self) -> BatchSubmission:
        """Return what the use case takes; raise Refused for what it could never do, ApiError for what misfits.

        The shared part is read by the shape of a single notification, so that both mean the same.
        """
        shared = {
            name: value
            for name in _SHARED
            if name in self.model_fields_set and (value := getattr(self, name)) is not None
        }
        if self.content is not None:
            shared["content"] = self.content.model_dump(exclude_none=True)
        one = schemas.validate(NotificationRequest, {**shared, "user_id": "everybody"}).submission()
        source = Source.RECIPIENTS
        if self.segment is not None:
            source = Source.SEGMENT
        elif self.upload is not None:
            source = Source.UPLOAD
        return BatchSubmission(
            source=source,
            category=one.category,
            priority=Priority[self.priority],
            channels=one.channels,
            title=one.title,
            body=one.body,
            html=one.html,
            template=one.template,
            payload=one.payload,
            metadata=one.metadata,
            scheduled_at=one.scheduled_at,
            expires_in=one.expires_in,
            canary=None if self.canary is None else self.canary.canary(),
            rows=[_row(index, each) for index, each in enumerate(self.recipients or ())],
            segment=None if self.segment is None else self.segment.stored(),
            upload_format=None if self.upload is None else self.upload.format,
        )


_SHARED = ("category", "channels", "template", "payload", "scheduled_at", "expires_in", "metadata")


def _row(index: int, each: BatchRecipient) -> dict[str, Any]:
    row: dict[str, Any] = {"user_id": each.user_id}
    if each.recipients is not None:
        row["recipients"] = each.recipients.model_dump(exclude_none=True)
    if each.payload:
        row["payload"] = each.payload
    if each.locale:
        row["locale"] = each.locale
    if len(orjson.dumps(row)) > schemas.OBJECT_LIMIT_BYTES:
        raise Refused(
            "DOMAIN_BATCH_ROW_TOO_LARGE",
            "A recipient says too much.",
            [Problem(f"recipients.{index}", f"must be at most {schemas.OBJECT_LIMIT_BYTES} bytes")],
        )
    return row


class BatchAccepted(BaseModel):
    """A batch that is stored. `next_offset` is where its upload begins, if it has one."""

    id: str
    state: BatchStateName
    source: Literal["RECIPIENTS", "SEGMENT", "UPLOAD"]
    created_at: datetime
    total: int | None
    next_offset: int | None


class BatchUpload(BaseModel):
    """How far the upload is."""

    format: Literal["csv", "ndjson"]
    next_offset: int


class BatchProgress(BaseModel):
    """How far the expansion is. `total` is unknown until a segment was counted; of a CSV it counts lines."""

    total: int | None
    read: int
    notifications: int
    rejected: int
    suppressed: dict[str, int]
    rows_per_second: float | None
    seconds_left: int | None


class BatchDeliveries(BaseModel):
    """Deliveries by what became of them, none counted before `counted_at`; together they are `total`."""

    total: int
    sent: int
    failed: int
    cancelled: int
    expired: int
    uncertain: int
    waiting: int
    counted_at: datetime | None


class BatchView(BaseModel):
    """A batch as it stands."""

    id: str
    state: BatchStateName
    reason: str | None
    source: Literal["RECIPIENTS", "SEGMENT", "UPLOAD"]
    category: str
    priority: PriorityName
    channels: list[ChannelName]
    metadata: dict[str, Any]
    segment: dict[str, Any] | None
    canary: dict[str, Any] | None
    scheduled_at: datetime | None
    expires_at: datetime | None
    upload: BatchUpload | None
    progress: BatchProgress
    deliveries: BatchDeliveries
    created_by: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class BatchList(BaseModel):
    """A page of batches."""

    data: list[BatchView]
    next_cursor: str | None


class PieceStored(BaseModel):
    """Where the next piece of a list begins."""

    next_offset: int


MODELS: tuple[type[BaseModel], ...] = (BatchRequest, BatchAccepted, BatchView, BatchList, PieceStored)
