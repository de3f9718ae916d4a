"""Sealed values as the service makes them with its default settings, for rows that tests put into tables."""

from typing import Any

import orjson

from app.sealing import context
from app.settings import Settings
from app.wiring import vault

VAULT = vault(Settings(_env_file=None))


def content_of(notification: Any) -> dict[str, Any]:
    """Return what a stored row of `notification` says."""
    place = context("notification", notification.tenant_id, str(notification.id))
    said: dict[str, Any] = orjson.loads(VAULT.open(place, bytes(notification.sealed)))
    return said


def sealed_content(
    notification_id: str, title: str, body: str, recipients: dict[str, str], tenant: str = "demo", **more: Any
) -> bytes:
    """Return what a notification says, sealed for its row."""
    said = {"title": title, "body": body, "recipients": recipients} | more
    return VAULT.seal(context("notification", tenant, notification_id), orjson.dumps(said))
