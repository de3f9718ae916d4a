"""The shapes of lists, the inbox, its marks and statistics: of what comes in and of what goes out."""

from datetime import date, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.api.answers import ListedNotification
from app.api.schemas import Content


class ReadAllRequest(BaseModel):
    """Which items of whose inbox to mark as read: up to now unless told."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        json_schema_extra={"example": {"user_id": "42", "until": "2026-07-01T09:00:00Z"}},
    )

    user_id: Annotated[
        str | None, Field(min_length=1, max_length=255, description="A token of the role USER may leave it out.")
    ] = None
    category: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    until: Annotated[
        str | None,
        Field(max_length=64, json_schema_extra={"format": "date-time"}, description="RFC 3339 with an offset."),
    ] = None


class NotificationList(BaseModel):
    """A page of notifications. With a filter it may be short, even empty, and still have a next one."""

    data: list[ListedNotification]
    next_cursor: str | None


class InboxItem(BaseModel):
    """A notification as its user sees it in the inbox."""

    id: str
    category: str
    content: Content
    metadata: dict[str, Any]
    created_at: datetime
    inbox_at: datetime
    seen_at: datetime | None
    read_at: datetime | None
    archived_at: datetime | None


class InboxList(BaseModel):
    """A page of an inbox. It may be short, even empty, and still have a next one."""

    data: list[InboxItem]
    next_cursor: str | None


class Marks(BaseModel):
    """What became of a notification; the first instant of each mark is kept."""

    id: str
    seen_at: datetime | None
    read_at: datetime | None
    archived_at: datetime | None


class ReadAllView(BaseModel):
    """How many items were marked as read, and up to when they had come in."""

    updated: int
    until: datetime


class UnreadCount(BaseModel):
    """Items of an inbox that are neither read nor archived nor deleted."""

    user_id: str
    unread: int


class StatisticsView(BaseModel):
    """Sums over what was accepted from `from` on and before `to`. `by_channel` counts deliveries."""

    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    total: int
    by_status: dict[str, int]
    by_channel: dict[str, int]
    by_category: dict[str, int]
    by_day: dict[date, int]
