"""The shapes of message control: frequency caps."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from app.api.schemas import ChannelName
from app.domain.frequency import MOST_LIMIT, WINDOW_LIMIT_SECONDS, FrequencyCap
from app.domain.kinds import Channel


class FrequencyCapRequest(BaseModel):
    """At most `limit` notifications of the category to a person in any window, over any of the channels."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        json_schema_extra={"example": {"limit": 3, "window_seconds": 86_400, "channels": ["PUSH", "SMS"]}},
    )

    limit: Annotated[int, Field(ge=0, le=MOST_LIMIT)]
    window_seconds: Annotated[int, Field(ge=1, le=WINDOW_LIMIT_SECONDS)]
    channels: Annotated[
        list[ChannelName],
        Field(
            min_length=1, max_length=len(Channel), description="Those that count and are capped; all if absent."
        ),
    ] = [channel.value for channel in Channel]

    @field_validator("channels")
    @classmethod
    def _are_distinct(cls, value: list[ChannelName]) -> list[ChannelName]:
        if len(set(value)) != len(value):
            raise PydanticCustomError("distinct", "must name each channel once")
        return value

    def cap(self) -> FrequencyCap:
        """Return the cap."""
        return FrequencyCap(self.limit, self.window_seconds, frozenset(map(Channel, self.channels)))


class FrequencyCapView(BaseModel):
    """The cap of a category."""

    category: str
    limit: int
    window_seconds: int
    channels: list[ChannelName]


class FrequencyCapList(BaseModel):
    """All caps of a tenant, by category; always one page."""

    data: list[FrequencyCapView]
    next_cursor: None
