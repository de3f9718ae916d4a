"""Reading the audit log, newest first, by cursor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.db import audit
from app.db.audit import EntryRow
from app.db.requests import Cursor, RequestPool
from app.domain.ids import first_id_at
from app.domain.instants import instant
from app.services.cursors import Cursors

_LIST = "audit"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_END = "ffffffff-ffff-ffff-ffff-ffffffffffff"


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are asked for; None asks for all. `since` is included, `until` is not.

    `action` is a whole one or what stands before its dot. The bounds are compared with the instant inside the ids,
    which is that of the server that made the entry.
    """

    action: str | None = None
    actor: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries, newest first, and where the next page begins."""

    rows: Sequence[EntryRow]
    next_cursor: str | None


class ReadAudit:
    """The use case."""

    def __init__(self, pool: RequestPool, cursors: Cursors) -> None:
        self._pool = pool
        self._cursors = cursors

    def page(self, tenant_id: str, wanted: AuditFilter, limit: int, cursor: str | None = None) -> AuditPage:
        """Return `limit` entries of a tenant from where `cursor` says; raise ValueError for a bad one.

        A cursor goes with every filter: it is a place in the log and says nothing about what is shown of it.
        """
        return self._page(audit.page, tenant_id, wanted, limit, cursor)

    def page_for_operator(
        self, tenant_id: str, wanted: AuditFilter, limit: int, cursor: str | None = None
    ) -> AuditPage:
        """Return the same past the policies; the empty tenant has the sign-ins that failed without one."""
        return self._page(audit.page_of_nobody, tenant_id, wanted, limit, cursor)

    def _page(
        self,
        read: Callable[[Cursor, dict[str, Any]], list[EntryRow]],
        tenant_id: str,
        wanted: AuditFilter,
        limit: int,
        cursor: str | None,
    ) -> AuditPage:
        scope = f"{_LIST} {tenant_id}"
        before = self._cursors.read(scope, cursor) if cursor else _END
        if wanted.until is not None:
            before = min(before, str(first_id_at(wanted.until)))
        values = {
            "tenant_id": tenant_id,
            "before": before,
            "since": str(first_id_at(wanted.since or _FIRST)),
            "action": wanted.action,
            "actor": wanted.actor,
            "resource_type": wanted.resource_type,
            "resource_id": wanted.resource_id,
            "limit": limit + 1,
        }
        rows = self._pool.run(lambda lent: read(lent, values))
        shown = rows[:limit]
        return AuditPage(shown, self._cursors.make(scope, shown[-1].id) if len(rows) > limit else None)


def view(row: EntryRow) -> dict[str, Any]:
    """Return an entry as the API shows it."""
    return {
        "id": row.id,
        "at": instant(row.at),
        "actor": row.actor,
        "actor_role": row.actor_role,
        "key_id": row.key_id,
        "action": row.action,
        "resource": {"type": row.resource_type, "id": row.resource_id},
        "changes": row.changes,
        "address": row.address,
        "trace_id": row.trace_id,
        "count": row.count,
    }
