"""What comes into inboxes: the cached unread counts are kept true, and the news is told.

Used by whoever stores or delivers in-app: the accept for what is due at once, the worker's recorder for the rest.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext

from app.cache.cache import Cache
from app.cache.namespaces import UNREAD
from app.services.inbox_events import InboxEvents


class Arrivals:
    """Stands around the transactions in which something comes into an inbox."""

    def __init__(self, cache: Cache, events: InboxEvents) -> None:
        self._cache = cache
        self._events = events

    def expected(self, inboxes: Collection[tuple[str, str]]) -> AbstractContextManager[None]:
        """Return what stands around a transaction that may change these inboxes, each a (tenant, user)."""
        return self._cache.changing(UNREAD, *set(inboxes)) if inboxes else nullcontext()

    def tell(self, tenant_id: str, user_id: str, identifier: str) -> None:
        """Tell, after the commit, that a notification came in."""
        self._events.tell(tenant_id, user_id, "created", identifier)
