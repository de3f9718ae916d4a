"""The shapes of answers, for the OpenAPI document; a test holds what is really sent against them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from app.api.schemas import ChannelName, Content, PriorityName, Recipients
from app.domain.error_codes import CATALOGUE


class AcceptedDelivery(BaseModel):
    """One delivery of an accepted notification."""

    id: str
    channel: ChannelName
    status: str


class Suppressed(BaseModel):
    """A channel for which no delivery was made."""

    channel: ChannelName
    reason: str


class DecisionView(BaseModel):
    """What was decided about one channel, or one device, when the notification was accepted.

    `rule` is what decided it. `until` and `time_zone` are there when it is held, `reason` when it is suppressed.
    """

    channel: ChannelName
    verdict: Literal["send", "hold", "suppress"]
    rule: str
    reason: str | None = None
    until: datetime | None = None
    time_zone: str | None = None
    device_id: str | None = None


class ScheduledLocal(BaseModel):
    """A time by the clocks on the wall, and the zone that was meant, or that was found to be the user's."""

    at: str
    time_zone: str


class ExplainedChannel(DecisionView):
    """What would become of one channel, or one device. `will_expire`: held until after its deadline."""

    provider: str | None
    at: datetime | None
    will_expire: bool


class Explained(BaseModel):
    """What would become of a notification."""

    status: Literal["ACCEPTED", "SUPPRESSED"]
    scheduled_at: datetime | None
    scheduled_local: ScheduledLocal | None
    expires_at: datetime | None
    channels: list[ExplainedChannel]


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


class ListedDelivery(BaseModel):
    """A delivery as it stands. The `unknown_…` fields say what happens to an UNKNOWN one, and when."""

    id: str
    channel: ChannelName
    device_id: str | None
    status: str
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


class DeliveryView(ListedDelivery):
    """A delivery with the calls that were made for it."""

    attempts: list[AttemptView]


class ListedNotification(BaseModel):
    """A notification with its deliveries. `inbox_at` says since when it is in the inbox; null: it is not."""

    id: str
    status: str
    created_at: datetime
    user_id: str
    batch_id: str | None
    category: str
    priority: PriorityName
    template: str | None
    template_version: int | None
    locale: str | None
    content: Content
    recipients: Recipients
    metadata: dict[str, Any]
    scheduled_at: datetime | None
    expires_at: datetime | None
    supersede_key: str | None
    fallback: list[FallbackStepView]
    suppressed: list[Suppressed]
    decision: list[DecisionView]
    scheduled_local: ScheduledLocal | None
    inbox_at: datetime | None
    seen_at: datetime | None
    read_at: datetime | None
    archived_at: datetime | None
    deliveries: list[ListedDelivery]


class NotificationView(ListedNotification):
    """A notification with its deliveries and their attempts. Only an ADMIN meets one that was deleted."""

    deleted_at: datetime | None
    deliveries: list[DeliveryView]  # type: ignore[assignment]  # each of them is a ListedDelivery with more


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


class AuditResource(BaseModel):
    """What an entry is about."""

    type: str
    id: str


class AuditEntryView(BaseModel):
    """One entry of the audit log. `changes` has names of fields; their values only where they are not personal."""

    id: str
    at: datetime
    actor: str
    actor_role: Literal["USER", "SERVICE", "ADMIN", "OPERATOR", "NONE"]
    key_id: str | None
    action: str
    resource: AuditResource
    changes: dict[str, Any]
    address: str | None
    trace_id: str | None
    count: int


class AuditList(BaseModel):
    """A page of the audit log."""

    data: list[AuditEntryView]
    next_cursor: str | None


class ErrorDetail(BaseModel):
    """One field that is wrong."""

    field: str
    message: str


class ErrorBody(BaseModel):
    """What went wrong."""

    # No enumeration: a client that was generated from one would fail over a code that came after it.
    code: Annotated[
        str,
        Field(
            pattern="^(VALIDATION|AUTH|DOMAIN|INFRA)_[A-Z_]+$",
            examples=list(CATALOGUE),
            description="Stable, for programs. The examples are all there are in this version; more may come.",
        ),
    ]
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
