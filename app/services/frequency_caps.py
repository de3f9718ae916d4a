"""Frequency caps of a tenant: set, listed and taken away."""

from dataclasses import dataclass
from typing import Any

from app.db import frequency
from app.db.requests import RequestPool
from app.domain.frequency import FrequencyCap
from app.services.refusal import NotFound, Refused

RULES_LIMIT = 100
"""A tenant has at most so many caps: they fit on one page."""


@dataclass(frozen=True)
class FrequencyCaps:
    """The use cases. A change holds for what is accepted from then on."""

    pool: RequestPool

    def all(self, tenant_id: str) -> list[dict[str, Any]]:
        """Return the caps of a tenant as the API shows them, by category."""
        found = self.pool.run(lambda cursor: frequency.caps(cursor, tenant_id))
        return [_view(category, cap) for category, cap in found.items()]

    def put(self, tenant_id: str, category: str, cap: FrequencyCap) -> dict[str, Any]:
        """Set the cap of a category and return it; raise Refused when the tenant has too many."""
        if not self.pool.run(lambda cursor: frequency.put(cursor, tenant_id, category, cap, RULES_LIMIT)):
            raise Refused("DOMAIN_FREQUENCY_CAPS_FULL", f"A tenant has at most {RULES_LIMIT} frequency caps.")
        return _view(category, cap)

    def delete(self, tenant_id: str, category: str) -> None:
        """Take the cap of a category away; raise NotFound when there is none."""
        if not self.pool.once(lambda cursor: frequency.delete(cursor, tenant_id, category)):
            raise NotFound("DOMAIN_FREQUENCY_CAP_NOT_FOUND", "The category has no frequency cap.")


def _view(category: str, cap: FrequencyCap) -> dict[str, Any]:
    return {
        "category": category,
        "limit": cap.most,
        "window_seconds": cap.window_seconds,
        "channels": sorted(cap.channels),
    }
