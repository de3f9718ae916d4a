"""What a tenant says about its messages: defaults for everything, and a word on each category.

What is not said is decided by our own defaults, and an answer shows what holds after them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.db import policies
from app.db.policies import CategoryRow, TenantRow
from app.db.requests import RequestPool
from app.domain.callers import Caller
from app.domain.circumstances import category_from, tenant_from
from app.domain.preferences import CategoryPolicy, TenantPolicy, category_policy, quiet_channels
from app.observability.logging import get_logger
from app.services.cursors import Cursors
from app.services.refusal import Refused

_LIST = "categories"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CategoryPage:
    """Some declared categories by name, and where the next page begins."""

    shown: Sequence[dict[str, Any]]
    next_cursor: str | None


class ManagePolicies:
    """The use cases. Each may be repeated on another connection when its own turns out to be dead."""

    def __init__(self, pool: RequestPool, cursors: Cursors) -> None:
        self._pool = pool
        self._cursors = cursors

    def tenant(self, tenant_id: str) -> dict[str, Any]:
        """Return a tenant's defaults as the API shows them."""
        return _tenant_view(self._pool.run(lambda cursor: policies.find_tenant(cursor, tenant_id)))

    def set_tenant(self, caller: Caller, policy: TenantPolicy) -> dict[str, Any]:
        """Replace the defaults of the caller's tenant."""
        start, end = policy.window.texts()
        values = {
            "tenant_id": caller.tenant_id,
            "time_zone": policy.time_zone,
            "locale": policy.locale,
            "quiet_start": start,
            "quiet_end": end,
            "channels": _json(policy.channels),
            "quiet": _json(policy.quiet),
        }
        row = self._pool.run(lambda cursor: policies.set_tenant(cursor, values))
        _log.info("tenant_policy_changed", tenant_id=caller.tenant_id, by=caller.subject)
        return _tenant_view(row)

    def category(self, tenant_id: str, name: str) -> dict[str, Any]:
        """Return a category as the API shows it: a declared one, or what holds without a declaration."""
        return category_view(name, self._pool.run(lambda cursor: policies.find_category(cursor, tenant_id, name)))

    def categories(self, tenant_id: str, limit: int, cursor: str | None = None) -> CategoryPage:
        """Return `limit` declared categories from where `cursor` says; raise ValueError for a bad one."""
        scope = f"{_LIST} {tenant_id}"
        after = "" if cursor is None else self._cursors.read(scope, cursor)
        rows = self._pool.run(lambda lent: policies.page_categories(lent, tenant_id, after, limit + 1))
        shown = rows[:limit]
        following = self._cursors.make(scope, shown[-1].name) if len(rows) > limit else None
        return CategoryPage([category_view(row.name, row) for row in shown], following)

    def set_category(
        self,
        caller: Caller,
        name: str,
        mandatory: bool | None,
        channels: Mapping[str, bool],
        quiet: Mapping[str, bool],
    ) -> dict[str, Any]:
        """Declare a category, in the place of what was declared before. Raises Refused beyond the limit."""
        values = {
            "tenant_id": caller.tenant_id,
            "name": name,
            "is_mandatory": mandatory,
            "channels": _json(channels),
            "quiet": _json(quiet),
        }
        row = self._pool.run(lambda cursor: policies.set_category(cursor, values))
        if row is None:
            raise Refused(
                "DOMAIN_CATEGORY_LIMIT", f"A tenant declares at most {policies.CATEGORIES_LIMIT} categories."
            )
        _log.info("category_declared", tenant_id=caller.tenant_id, by=caller.subject, category=name)
        return category_view(name, row)

    def delete_category(self, caller: Caller, name: str) -> None:
        """Take a declaration back; what people chose about the category stays."""
        self._pool.run(lambda cursor: policies.delete_category(cursor, caller.tenant_id, name))
        _log.info("category_withdrawn", tenant_id=caller.tenant_id, by=caller.subject, category=name)


def tenant_policy(row: TenantRow | None) -> TenantPolicy:
    """Return what holds for a tenant whose row is `row`."""
    return TenantPolicy() if row is None else tenant_from(*row[:6])


def declared(row: CategoryRow) -> CategoryPolicy:
    """Return what holds for a declared category."""
    return category_from(*row[:4])


def category_view(name: str, row: CategoryRow | None) -> dict[str, Any]:
    """Return a category as the API shows it."""
    policy = category_policy(name) if row is None else declared(row)
    return {
        "name": name,
        "declared": policy.is_declared,
        "mandatory": policy.is_mandatory,
        "channels": dict(policy.channels),
        "quiet_hours": quiet_channels(policy),
    }


def _tenant_view(row: TenantRow | None) -> dict[str, Any]:
    policy = tenant_policy(row)
    start, end = policy.window.texts()
    return {
        "time_zone": policy.time_zone,
        "locale": policy.locale,
        "quiet_window": {"start": start, "end": end},
        "channels": dict(policy.channels),
        "quiet_hours": dict(policy.quiet),
    }


def _json(switches: Mapping[str, bool]) -> str:
    return orjson.dumps(dict(switches)).decode()
