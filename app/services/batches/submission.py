"""What a caller asks for with a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.batches import Canary, Source
from app.domain.kinds import Channel, Priority


@dataclass(frozen=True, slots=True)
class BatchSubmission:
    """The shared part, and where the recipients come from: `rows`, `segment`, or an upload in `upload_format`.

    `expires_in` is in seconds from acceptance, or from `scheduled_at`; it ends the expansion too.
    """

    source: Source
    category: str
    priority: Priority
    channels: tuple[Channel, ...]
    title: str
    body: str
    html: str | None
    template: str | None
    payload: Mapping[str, Any]
    metadata: Mapping[str, Any]
    scheduled_at: datetime | None
    expires_in: int | None
    canary: Canary | None
    rows: Sequence[Mapping[str, Any]] = ()
    segment: Mapping[str, Any] | None = None
    upload_format: str | None = None
