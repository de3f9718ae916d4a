"""Devices from the side of the user: registered, listed, muted, forgotten.

A token is one phone. When another user of the tenant registers it, it has changed hands and is theirs; nothing for
its former user is sent to it any more. Of a user who has as many as are kept, the one not seen for longest makes
room: apps that were deleted never say so, and a new phone must not be locked out by their tokens.
"""

from typing import Any

from app.db import devices
from app.db.devices import DeviceRow
from app.db.requests import RequestPool
from app.domain import masking
from app.domain.callers import Caller
from app.domain.ids import mint
from app.domain.instants import instant
from app.observability.logging import get_logger
from app.sealing import Vault, context
from app.services.manage_users import not_found, opened, sees_addresses
from app.services.refusal import NotFound

_log = get_logger(__name__)


class ManageDevices:
    """The use cases. Each may be repeated on another connection when its own turns out to be dead."""

    def __init__(self, pool: RequestPool, vault: Vault, devices_per_user: int) -> None:
        self._pool = pool
        self._vault = vault
        self._others = devices_per_user - 1

    def register(self, caller: Caller, user_id: str, given: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Store a token, or note that it was seen; return the device and whether it is new. Raises NotFound.

        `given` holds `platform`, `token`, and `time_zone` and `is_muted`, which may be None.
        """
        _only_own(caller, user_id)
        identifier, tenant_id = str(mint()[0]), caller.tenant_id
        values = given | {
            "tenant_id": tenant_id,
            "user_id": user_id,
            "id": identifier,
            "token": self._vault.seal(context("device", tenant_id, identifier), given["token"].encode()),
            "token_index": self._vault.index(tenant_id, "device", given["token"]),
            "others": self._others,
        }
        row = self._pool.run(lambda cursor: devices.register(cursor, values))
        if row is None:
            raise not_found()
        _log.info("device_registered", tenant_id=tenant_id, device_id=row.id)
        return self._view(caller, user_id, row), row.id == identifier

    def page(self, caller: Caller, user_id: str) -> list[dict[str, Any]]:
        """Return a user's devices; raise NotFound."""
        _only_own(caller, user_id)
        rows = self._pool.run(lambda cursor: devices.page(cursor, caller.tenant_id, user_id))
        if rows is None:
            raise not_found()
        return [self._view(caller, user_id, row) for row in rows]

    def change(self, caller: Caller, user_id: str, identifier: str, given: dict[str, Any]) -> dict[str, Any]:
        """Change `is_muted` or `time_zone`, as far as given; raise NotFound."""
        _only_own(caller, user_id)
        values = {
            "tenant_id": caller.tenant_id,
            "user_id": user_id,
            "id": identifier,
            "is_muted": given.get("is_muted"),
            "sets_zone": "time_zone" in given,
            "time_zone": given.get("time_zone"),
        }
        row = self._pool.run(lambda cursor: devices.change(cursor, values))
        if row is None:
            raise device_not_found()
        return self._view(caller, user_id, row)

    def remove(self, caller: Caller, user_id: str, identifier: str) -> None:
        """Forget a device; raise NotFound."""
        _only_own(caller, user_id)
        if not self._pool.run(lambda cursor: devices.remove(cursor, caller.tenant_id, user_id, identifier)):
            raise device_not_found()

    def _view(self, caller: Caller, user_id: str, row: DeviceRow) -> dict[str, Any]:
        token = opened(self._vault, context("device", caller.tenant_id, row.id), row.token) or ""
        return {
            "id": row.id,
            "platform": row.platform,
            "token": token if sees_addresses(caller, user_id) else masking.token(token),
            "time_zone": row.time_zone,
            "is_muted": row.is_muted,
            "registered_at": instant(row.registered_at),
            "last_seen_at": None if row.last_seen_at is None else instant(row.last_seen_at),
        }


def device_not_found() -> NotFound:
    """Return the answer for a device that is not there, or not this user's."""
    return NotFound("DOMAIN_DEVICE_NOT_FOUND", "There is no such device.")


def _only_own(caller: Caller, user_id: str) -> None:
    if caller.only_user not in {None, user_id}:
        raise not_found()
