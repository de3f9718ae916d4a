"""The suppression list, from the side of people who look after it, and of whatever learns that an address is dead.

An address is stored sealed, found by its blind index, and shown masked unless the caller may read recipients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.db import suppressions
from app.db.requests import RequestPool
from app.db.suppressions import Suppression, SuppressionRow
from app.domain import masking
from app.domain.callers import Caller
from app.domain.ids import mint
from app.domain.instants import instant
from app.domain.kinds import Channel
from app.observability.logging import get_logger
from app.sealing import Vault, context
from app.services.cursors import Cursors
from app.services.recipients import INDEX_KINDS, NORMALISERS, InvalidRecipientError
from app.services.refusal import NotFound, Problem, Refused

_LIST = "suppressions"
_log = get_logger(__name__)


class Reason(StrEnum):
    """Why nothing is sent to an address."""

    BOUNCE = "BOUNCE"
    """Its provider said that it takes no mail, or that it does not exist."""
    COMPLAINT = "COMPLAINT"
    """Whoever reads it called a message spam."""
    OPT_OUT = "OPT_OUT"
    """Whoever reads it told the provider, or the tenant, that they want nothing."""
    MANUAL = "MANUAL"
    """Somebody of the tenant put it here."""


@dataclass(frozen=True, slots=True)
class Look:
    """Which entries of the list are asked for; None for all."""

    channel: Channel | None = None
    reason: Reason | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class SuppressionPage:
    """Some entries, newest first, and where the next page begins."""

    shown: Sequence[dict[str, Any]]
    next_cursor: str | None


class Suppressions:
    """The use cases. Each may be repeated on another connection when its own turns out to be dead."""

    def __init__(self, pool: RequestPool, vault: Vault, cursors: Cursors) -> None:
        self._pool = pool
        self._vault = vault
        self._cursors = cursors

    def add(
        self, caller: Caller, channel: Channel, address: str, reason: Reason, note: str | None
    ) -> dict[str, Any]:
        """Put an address on the list; one that is there already stays, with the reason that weighs more.

        Raises Refused for what is no address of the channel.
        """
        entry = suppression(
            self._vault,
            caller.tenant_id,
            channel,
            normalised(channel, address),
            reason,
            source=f"api:{caller.subject}",
            note=note,
        )
        row = self._pool.run(lambda cursor: suppressions.suppress_one(cursor, entry))
        _log.info("suppression_added", tenant_id=caller.tenant_id, suppression_id=row.id, by=caller.subject)
        return self._view(caller, row)

    def page(self, caller: Caller, look: Look, limit: int, cursor: str | None = None) -> SuppressionPage:
        """Return `limit` entries from where `cursor` says; raise ValueError for a bad one, or Refused."""
        index = None
        if look.channel is not None and look.address is not None:
            index = self._index(caller.tenant_id, look.channel, normalised(look.channel, look.address))
        scope = f"{_LIST} {caller.tenant_id} {look.channel} {look.reason} {index.hex() if index else None}"
        values = {
            "tenant_id": caller.tenant_id,
            "before": None if cursor is None else self._cursors.read(scope, cursor),
            "channel": look.channel,
            "reason": look.reason,
            "index": index,
            "limit": limit + 1,
        }
        rows = self._pool.run(lambda lent: suppressions.page(lent, values))
        shown = rows[:limit]
        following = self._cursors.make(scope, shown[-1].id) if len(rows) > limit else None
        return SuppressionPage([self._view(caller, row) for row in shown], following)

    def remove(self, caller: Caller, identifier: str) -> None:
        """Take an address off the list; raise NotFound."""
        if not self._pool.run(lambda cursor: suppressions.delete(cursor, caller.tenant_id, identifier)):
            raise not_found()
        _log.info("suppression_removed", tenant_id=caller.tenant_id, suppression_id=identifier, by=caller.subject)

    def _index(self, tenant_id: str, channel: Channel, address: str) -> bytes:
        return self._vault.index(tenant_id, INDEX_KINDS[channel], address)

    def _view(self, caller: Caller, row: SuppressionRow) -> dict[str, Any]:
        address = row.masked
        if caller.has("recipients:read"):
            address = self._vault.open(
                context("suppression", caller.tenant_id, row.channel, row.id), bytes(row.address)
            ).decode()
        return {
            "id": row.id,
            "channel": row.channel,
            "address": address,
            "reason": row.reason,
            "source": row.source,
            "note": row.note,
            "created_at": instant(row.created_at),
        }


def suppression(
    vault: Vault,
    tenant_id: str,
    channel: Channel,
    address: str,
    reason: Reason,
    *,
    source: str,
    note: str | None = None,
) -> Suppression:
    """Return the entry of a normalised address: indexed, masked and sealed."""
    identifier = str(mint()[0])
    sealed = vault.seal(context("suppression", tenant_id, channel.value, identifier), address.encode())
    return Suppression(
        tenant_id,
        channel.value,
        vault.index(tenant_id, INDEX_KINDS[channel], address),
        identifier,
        reason.value,
        source,
        note,
        masking.recipient(channel.value, address),
        sealed,
    )


def normalised(channel: Channel, address: str) -> str:
    """Return an address in the form that is compared; raise Refused."""
    normalise = NORMALISERS.get(channel)
    if normalise is None:
        raise Refused(
            "DOMAIN_RECIPIENT_INVALID", "This channel has no addresses.", [Problem("channel", "has none")]
        )
    try:
        return normalise(address)
    except InvalidRecipientError as error:
        raise Refused(
            "DOMAIN_RECIPIENT_INVALID", "An address is none.", [Problem("address", str(error))]
        ) from error


def not_found() -> NotFound:
    """Return the refusal for an entry that is not there."""
    return NotFound("DOMAIN_SUPPRESSION_NOT_FOUND", "There is no such entry on the suppression list.")
