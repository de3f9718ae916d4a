"""The inbox of a user: how many items are unread, and what a reader does to them.

Every write keeps the cached count true: it goes through `Cache.changing`, and tells the news after its commit.
"""

from datetime import datetime
from uuid import UUID

from app.cache.cache import Cache
from app.cache.namespaces import UNREAD
from app.db import lists, marks
from app.db.marks import Marked, Owner
from app.db.requests import RequestPool
from app.domain.callers import Caller
from app.observability import metrics
from app.services.audit import audited
from app.services.inbox_events import InboxEvents
from app.services.refusal import NotFound


class Inbox:
    """The use cases. Repeating one changes nothing more."""

    def __init__(self, pool: RequestPool, cache: Cache, events: InboxEvents) -> None:
        self._pool = pool
        self._cache = cache
        self._events = events

    def unread(self, tenant_id: str, user_id: str) -> int:
        """Return how many items are neither read nor archived nor deleted; 0 for a user that nobody knows."""
        return self._cache.get_or_load(
            UNREAD,
            (tenant_id, user_id),
            lambda: self._pool.run(lambda cursor: lists.count_unread(cursor, tenant_id, user_id)),
        )

    def mark(self, tenant_id: str, identifier: UUID, mark: str, only_user: str | None = None) -> Marked:
        """Set a mark of `app.db.marks.MARKS`, or take it away; raise NotFound. The first instant is kept."""
        owner = self._owner(tenant_id, identifier, only_user)
        with self._cache.changing(UNREAD, (tenant_id, owner.user_id)):
            marked = self._pool.run(lambda cursor: marks.mark(cursor, mark, tenant_id, identifier))
        if marked is None:
            raise _not_found()
        if marked.is_changed:
            self._events.tell(tenant_id, owner.user_id, mark, marked.id)
        return marked

    def read_all(
        self, tenant_id: str, user_id: str, until: datetime | None = None, category: str | None = None
    ) -> tuple[int, datetime]:
        """Mark as read what came into the inbox up to `until`, or now; return how many, and the instant used.

        What arrives meanwhile stays unread.
        """
        with self._cache.changing(UNREAD, (tenant_id, user_id)):
            count, used = self._pool.run(
                lambda cursor: marks.read_all(cursor, tenant_id, user_id, until, category)
            )
        if count:
            self._events.tell(tenant_id, user_id, "read_all")
        return count, used

    def delete(self, caller: Caller, identifier: UUID) -> None:
        """Hide a notification from all but an ADMIN, and call off what of it was not sent; raise NotFound."""
        owner = self._owner(caller.tenant_id, identifier, caller.only_user)
        entry = audited(caller, "notification.deleted", "notification", str(identifier))
        with self._cache.changing(UNREAD, (caller.tenant_id, owner.user_id)):
            cancelled = self._pool.run(lambda cursor: marks.delete(cursor, identifier, entry))
        metrics.CANCELLED.inc(cancelled)
        self._events.tell(caller.tenant_id, owner.user_id, "deleted", str(identifier))

    def restore(self, tenant_id: str, identifier: UUID) -> None:
        """Show a deleted notification again, and send nothing of it; raise NotFound."""
        owner = self._owner(tenant_id, identifier, None, with_deleted=True)
        with self._cache.changing(UNREAD, (tenant_id, owner.user_id)):
            is_changed = self._pool.run(lambda cursor: marks.restore(cursor, tenant_id, identifier))
        if is_changed:
            self._events.tell(tenant_id, owner.user_id, "restored", str(identifier))

    def _owner(
        self, tenant_id: str, identifier: UUID, only_user: str | None, *, with_deleted: bool = False
    ) -> Owner:
        owner = self._pool.run(lambda cursor: marks.owner(cursor, tenant_id, identifier, only_user))
        if owner is None or (owner.is_deleted and not with_deleted):
            raise _not_found()
        return owner


def _not_found() -> NotFound:
    return NotFound("DOMAIN_NOTIFICATION_NOT_FOUND", "There is no such notification.")
