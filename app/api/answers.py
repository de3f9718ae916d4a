"""The shapes of answers, for the OpenAPI document; a test holds what is really sent against them."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from app.api.schemas import ChannelName, Content, PriorityName, Recipients


class AcceptedDelivery(BaseModel):
    """One delivery of an accepted notification."""

    id: str
    channel: ChannelName
    status: str


class Suppressed(BaseModel):
    """A channel for which no delivery was made."""

    channel: ChannelName
    reason: str


class NotificationAccepted(BaseModel):
    """The answer to an accepted notification; a repeated request gets the same one."""

    id: str
    status: str
    created_at: datetime
    deliveries: list[AcceptedDelivery]
    suppressed: list[Suppressed]


class AttemptView(BaseModel):
    """One call of a provider."""

    number: int
    provider: str
    outcome: str
    code: str | None
    detail: str | None
    started_at: datetime
    duration_ms: int


class DeliveryView(BaseModel):
    """A delivery as it stands. The `unknown_…` fields say what happens to an UNKNOWN one, and when."""

    id: str
    channel: ChannelName
    device_id: str | None
    status: str
    attempts: list[AttemptView]
    next_attempt_at: datetime | None
    error_code: str | None
    last_error: str | None
    provider: str | None
    provider_message_id: str | None
    uncertain: bool
    note: str | None
    unknown_policy: Literal["resend", "hold"] | None
    unknown_until: datetime | None
    cancel_requested_at: datetime | None
    sent_at: datetime | None
    delivered_at: datetime | None
    expires_at: datetime | None


class FallbackStepView(BaseModel):
    """One channel of a chain: WAITING for the one before it, MADE into deliveries, or DROPPED as not needed.

    `reason` says why: first, failed or not_delivered of one that was made; delivered, cancelled, superseded,
    expired or gone of one that was dropped.
    """

    step: int
    channel: ChannelName
    status: Literal["WAITING", "MADE", "DROPPED"]
    reason: str | None
    after_seconds: float | None
    check_at: datetime | None
    decided_at: datetime | None


class NotificationView(BaseModel):
    """A notification with its deliveries and their attempts."""

    id: str
    status: str
    created_at: datetime
    user_id: str
    category: str
    priority: PriorityName
    content: Content
    recipients: Recipients
    metadata: dict[str, Any]
    scheduled_at: datetime | None
    expires_at: datetime | None
    supersede_key: str | None
    fallback: list[FallbackStepView]
    suppressed: list[Suppressed]
    deliveries: list[DeliveryView]


class CancelledDeliveryView(AcceptedDelivery):
    """A delivery after a request to cancel."""

    result: Literal["cancelled", "being sent", "already ended"]


class CancelView(BaseModel):
    """A notification after a request to cancel."""

    id: str
    status: str
    deliveries: list[CancelledDeliveryView]


class ApiKeyView(BaseModel):
    """An API key, without the key itself. REPLACED ones work until `expires_at`."""

    id: str
    prefix: str
    name: str
    scopes: list[str]
    status: Literal["ACTIVE", "REPLACED", "EXPIRED", "REVOKED"]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    replaced_by: str | None
    last_used_at: datetime | None


class ApiKeyIssued(ApiKeyView):
    """A key that was just made. `key` is shown here and never again."""

    key: str


class ApiKeyList(BaseModel):
    """A page of keys."""

    data: list[ApiKeyView]
    next_cursor: str | None


class ErrorDetail(BaseModel):
    """One field that is wrong."""

    field: str
    message: str


class ErrorBody(BaseModel):
    """What went wrong."""

    code: str
    message: str
    details: list[ErrorDetail]
    timestamp: datetime
    trace_id: str


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    error: ErrorBody


class HealthAnswer(BaseModel):
    """The state of the service and of the parts that it needs."""

    status: Literal["ok", "degraded", "down"]
    timestamp: datetime
    checks: dict[str, Literal["ok", "down"]]
