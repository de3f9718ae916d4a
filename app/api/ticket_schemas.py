"""The shapes of a stream ticket: what is asked for and what is answered."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, field_validator


class StreamTicketRequest(BaseModel):
    """Whose inbox the ticket is for: one's own for a token of the role USER, a named user's for anybody else."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    user_id: Annotated[StrictStr, Field(min_length=1, max_length=255)] | StrictInt | None = None

    @field_validator("user_id")
    @classmethod
    def _as_text(cls, value: str | int | None) -> str | None:
        return None if value is None else str(value)


class StreamTicket(BaseModel):
    """A ticket, and for how many seconds it opens `GET /v1/inbox/stream?ticket=…`."""

    ticket: str
    expires_in: int
