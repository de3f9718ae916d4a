"""What tenants say, kept in a worker for a few seconds: each batch would ask the same again."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import monotonic

from app.db import policies
from app.db.steady import SteadyConnections
from app.domain.preferences import CategoryPolicy, TenantPolicy, category_policy

_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Said:
    """What one tenant says: about everything, and about the categories that it declared."""

    tenant: TenantPolicy
    categories: Mapping[str, CategoryPolicy]
    until: float

    def category(self, name: str) -> CategoryPolicy:
        """Return what holds for a category, declared or not."""
        return self.categories.get(name) or category_policy(name)


class PolicyBook:
    """Reads what tenants say, and goes on with it for `trusted_seconds`. Threads may ask at the same time."""

    def __init__(
        self, database: SteadyConnections, trusted_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._database = database
        self._trusted_seconds = trusted_seconds
        self._clock = clock
        self._known: dict[str, Said] = {}

    def of(self, tenants: Collection[str]) -> dict[str, Said]:
        """Return what each of `tenants` says. Raises SQLAlchemyError when the database did not answer."""
        now = self._clock()
        found = {
            tenant: said
            for tenant in tenants
            if (said := self._known.get(tenant)) is not None and said.until > now
        }
        missing = [tenant for tenant in tenants if tenant not in found]
        if missing:
            read = self._database.run(policies.of_tenants, missing)
            fresh = {
                tenant: Said(policy, categories, now + self._trusted_seconds)
                for tenant, (policy, categories) in read.items()
            }
            if len(self._known) > _REMEMBERED:
                self._known = {}
            self._known = {**self._known, **fresh}
            found |= fresh
        return found
