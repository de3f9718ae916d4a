"""Reading one notification: its deliveries, their attempts, and what is decided about an uncertain one."""

from collections import defaultdict
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from app.db import notifications
from app.db.requests import RequestPool
from app.domain import masking
from app.domain.instants import instant
from app.domain.kinds import Channel, Priority
from app.domain.states import DeliveryState
from app.domain.summary import summarise
from app.observability.logging import get_logger
from app.sealing import SealBrokenError, UnknownKeyError, Vault, context
from app.services.batches.content import with_shared
from app.services.refusal import NotFound, Unavailable
from app.settings import Settings

log = get_logger(__name__)

_WAITING = frozenset({DeliveryState.PENDING, DeliveryState.QUEUED})
_DOUBTED = frozenset({DeliveryState.FAILED, DeliveryState.CANCELLED, DeliveryState.EXPIRED})
_UNDECIDED_NOTE = "a call may have been accepted; it is not known yet"
_DOUBTED_NOTE = "an earlier call may have been delivered"


class ReadNotification:
    """The use case."""

    def __init__(self, pool: RequestPool, vault: Vault, settings: Settings) -> None:
        self._pool = pool
        self._vault = vault
        self._settings = settings

    def __call__(
        self,
        tenant_id: str,
        identifier: UUID,
        only_user: str | None = None,
        *,
        with_deleted: bool = False,
        shows_addresses: bool = False,
    ) -> dict[str, Any]:
        """Return a tenant's notification as the API shows it, if it is `only_user`'s; raise NotFound.

        Recipients are masked unless `shows_addresses`.
        """
        row = self._pool.run(
            lambda cursor: notifications.read(cursor, tenant_id, identifier, only_user, with_deleted=with_deleted)
        )
        if row is None:
            raise NotFound("DOMAIN_NOTIFICATION_NOT_FOUND", "There is no such notification.")
        attempts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for attempt in row["attempts"]:
            attempt["started_at"] = _reformat(attempt["started_at"])
            attempts[attempt.pop("delivery_id")].append(attempt)
        priority = Priority(row["priority"])
        said = opened(self._vault, tenant_id, row["id"], row["sealed"], (row["batch_id"], row["batch_sealed"]))
        return _notification(row, said, priority, shows_addresses=shows_addresses) | {
            "deleted_at": instant(row["deleted_at"]) if row["deleted_at"] else None,
            "deliveries": [self._delivery(each, priority, attempts[each["id"]]) for each in row["deliveries"]],
        }

    def listed(self, tenant_id: str, row: dict[str, Any], *, shows_addresses: bool) -> dict[str, Any]:
        """Return a row of `app.db.lists.page` as a list shows it: as one alone, but without attempts."""
        priority = Priority(row["priority"])
        said = opened(self._vault, tenant_id, row["id"], row["sealed"], (row["batch_id"], row["batch_sealed"]))
        deliveries = [self._delivery(each, priority, []) for each in row["deliveries"]]
        for delivery in deliveries:
            del delivery["attempts"]
        return _notification(row, said, priority, shows_addresses=shows_addresses) | {"deliveries": deliveries}

    def _delivery(self, row: dict[str, Any], priority: Priority, attempts: list[dict[str, Any]]) -> dict[str, Any]:
        status = DeliveryState(row["status"])
        due = _reformat(row["next_attempt_at"])
        is_unknown = status is DeliveryState.UNKNOWN
        return {
            "id": row["id"],
            "channel": row["channel"],
            "device_id": row["device_id"],
            "status": status,
            "attempts": attempts,
            "next_attempt_at": due if status in _WAITING else None,
            "error_code": row["error_code"],
            "last_error": row["last_error"],
            "provider": row["provider"],
            "provider_message_id": row["provider_message_id"],
            "uncertain": row["uncertain"],
            "note": _note(status, is_uncertain=row["uncertain"]),
            "unknown_policy": self._settings.policy(Channel(row["channel"]), priority) if is_unknown else None,
            "unknown_until": due if is_unknown else None,
            "cancel_requested_at": _reformat(row["cancel_requested_at"]),
            "sent_at": _reformat(row["sent_at"]),
            "delivered_at": _reformat(row["delivered_at"]),
            "expires_at": _reformat(row["expires_at"]),
        }


def opened(
    vault: Vault,
    tenant_id: str,
    identifier: str,
    sealed: memoryview | None,
    batch: tuple[str | None, memoryview | None] = (None, None),
) -> dict[str, Any]:
    """Return what a notification says, as `app.services.accept.rows` sealed it; empty once erased or damaged.

    `batch` is the id of its batch, if it has one, and what that says. Raises Unavailable while a key is not there:
    what was sealed is still whole.
    """
    if sealed is None:
        return {}
    batch_id, batch_sealed = batch
    said: dict[str, Any] = {}
    try:
        if len(sealed):
            said = orjson.loads(vault.open(context("notification", tenant_id, identifier), bytes(sealed)))
        if batch_id is not None and batch_sealed is not None:
            shared = vault.open(context("batch", tenant_id, batch_id), bytes(batch_sealed))
            said = with_shared(orjson.loads(shared), said)
    except UnknownKeyError as error:
        log.error("encryption_key_missing", notification_id=identifier, error=str(error))  # noqa: TRY400
        raise Unavailable("INFRA_ENCRYPTION_KEY_MISSING", "This cannot be read right now.", 60) from error
    except SealBrokenError as error:
        log.error("sealed_content_broken", notification_id=identifier, error=str(error))  # noqa: TRY400
        return {}
    return said


def _notification(
    row: dict[str, Any], said: dict[str, Any], priority: Priority, *, shows_addresses: bool
) -> dict[str, Any]:
    recipients = said.get("recipients", {})
    if not shows_addresses:
        recipients = {channel: masking.recipient(channel, text) for channel, text in recipients.items()}
    return {
        "id": row["id"],
        "status": summarise(
            [DeliveryState(each["status"]) for each in row["deliveries"]],
            goes_on=any(each["status"] == "WAITING" for each in row["steps"] or ()),
        ),
        "created_at": instant(row["created_at"]),
        "user_id": row["user_id"],
        "batch_id": row["batch_id"],
        "category": row["category"],
        "priority": priority.name,
        "template": row["template"],
        "template_version": row["template_version"],
        "locale": row["locale"],
        "content": {"title": said.get("title", ""), "body": said.get("body", "")}
        | ({"html": said["html"]} if "html" in said else {}),
        "recipients": recipients,
        "metadata": row["metadata"],
        "scheduled_at": instant(row["scheduled_at"]) if row["scheduled_at"] else None,
        "expires_at": instant(row["expires_at"]) if row["expires_at"] else None,
        "supersede_key": row["supersede_key"],
        "fallback": [
            each | {"check_at": _reformat(each["check_at"]), "decided_at": _reformat(each["decided_at"])}
            for each in row["steps"] or ()
        ],
        "suppressed": row["suppressed"],
        "decision": row["decision"] or [],
        "scheduled_local": row["scheduled_local"],
    } | marks(row)


def marks(row: dict[str, Any]) -> dict[str, str | None]:
    """Return what became of a notification in the inbox, as the API shows it."""
    names = ("inbox_at", "seen_at", "read_at", "archived_at")
    return {name: None if row[name] is None else instant(row[name]) for name in names}


def _note(status: DeliveryState, *, is_uncertain: bool) -> str | None:
    if status is DeliveryState.UNKNOWN:
        return _UNDECIDED_NOTE
    return _DOUBTED_NOTE if is_uncertain and status in _DOUBTED else None


def _reformat(text: str | None) -> str | None:
    """Return an instant that PostgreSQL wrote into JSON in the API's own form."""
    return None if text is None else instant(datetime.fromisoformat(text))
