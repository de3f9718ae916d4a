"""Lists: of notifications and of an inbox, a page at a time, with cursors that only we can make."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.db import lists
from app.db.requests import Cursor, RequestPool
from app.domain.ids import first_id_at
from app.domain.instants import instant
from app.sealing import Vault
from app.services.cursors import Cursors
from app.services.reading import ReadNotification, marks, opened

SCAN = 1000
"""Rows that a page looks at for those that fit its filter. It ends short there, and its cursor goes on behind."""

_LEAST = UUID(int=0)
_BEYOND = UUID(int=(1 << 128) - 1)
_Fetch = Callable[[Cursor, dict[str, Any]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list is narrowed to; None does not narrow. Accepted from `since` on and before `until`."""

    user_id: str | None = None
    category: str | None = None
    channel: str | None = None
    status: str | None = None
    unread: bool | None = None
    archived: bool = False
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_selective(self) -> bool:
        """Whether rows that are looked at may not fit."""
        return any(each is not None for each in (self.category, self.channel, self.status, self.unread))


@dataclass(frozen=True, slots=True)
class Listed:
    """A page as the API shows it. It may be short, even empty: the list is over when `next_cursor` is None."""

    data: list[dict[str, Any]]
    next_cursor: str | None


class Lists:
    """The use cases. Each is one round trip, and two for a page that a filter left short."""

    def __init__(self, pool: RequestPool, vault: Vault, cursors: Cursors, read: ReadNotification) -> None:
        self._pool = pool
        self._vault = vault
        self._cursors = cursors
        self._read = read

    def notifications(
        self,
        tenant_id: str,
        wanted: Filter,
        limit: int,
        cursor: str | None = None,
        *,
        shows_addresses: bool = False,
    ) -> Listed:
        """Return a page of a tenant's notifications, newest first; raise ValueError for another list's cursor."""
        scan = SCAN if wanted.is_selective else limit + 1
        rows, following = self._page(
            lists.page, tenant_id, wanted, name="notifications", limit=limit, scan=scan, cursor=cursor
        )
        return Listed(
            [self._read.listed(tenant_id, row, shows_addresses=shows_addresses) for row in rows], following
        )

    def inbox(self, tenant_id: str, wanted: Filter, limit: int, cursor: str | None = None) -> Listed:
        """Return a page of the inbox of `wanted.user_id`, newest first; raise ValueError as above."""
        rows, following = self._page(
            lists.inbox, tenant_id, wanted, name="inbox", limit=limit, scan=SCAN, cursor=cursor
        )
        return Listed([self._item(tenant_id, row) for row in rows], following)

    def _page(
        self,
        fetch: _Fetch,
        tenant_id: str,
        wanted: Filter,
        *,
        name: str,
        limit: int,
        scan: int,
        cursor: str | None,
    ) -> tuple[list[dict[str, Any]], str | None]:
        # A cursor belongs to the whose-list and not to its filters: another filter goes on from the same place.
        scope = f"{name} {tenant_id}\0{wanted.user_id or ''}"
        before = first_id_at(wanted.until) if wanted.until is not None else _BEYOND
        if cursor is not None:
            before = min(before, UUID(self._cursors.read(scope, cursor)))
        values: dict[str, Any] = {
            "tenant_id": tenant_id,
            "user_id": wanted.user_id,
            "low": str(_LEAST if wanted.since is None else first_id_at(wanted.since)),
            "before": str(before),
            "scan": scan,
            "limit": limit + 1,
            "category": wanted.category,
            "channel": wanted.channel,
            "status": wanted.status,
            "unread": wanted.unread,
            "archived": wanted.archived,
        }

        def work(lent: Cursor) -> tuple[list[dict[str, Any]], str | None]:
            rows = fetch(lent, values)
            if len(rows) > limit:
                return rows[:limit], str(rows[limit - 1]["id"])
            return rows, lists.scan_end(lent, values) if scan > limit + 1 else None

        rows, place = self._pool.run(work)
        return rows, None if place is None else self._cursors.make(scope, place)

    def _item(self, tenant_id: str, row: dict[str, Any]) -> dict[str, Any]:
        said = opened(self._vault, tenant_id, row["id"], row["sealed"], (row["batch_id"], row["batch_sealed"]))
        return {
            "id": row["id"],
            "category": row["category"],
            "content": {"title": said.get("title", ""), "body": said.get("body", "")},
            "metadata": row["metadata"],
            "created_at": instant(row["created_at"]),
        } | marks(row)
