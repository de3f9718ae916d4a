"""What decides about a message beside what was asked: what the tenant and the person said, and dead addresses."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import time
from zoneinfo import ZoneInfo

from app.domain.preferences import (
    CategoryPolicy,
    Choices,
    QuietWish,
    Switches,
    TenantPolicy,
    category_policy,
)
from app.domain.quiet_hours import Window
from app.domain.zones import zone_or


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Of one message. `suppressed` are the channels whose explicit recipient stands on the suppression list."""

    category: CategoryPolicy
    tenant: TenantPolicy = field(default_factory=TenantPolicy)
    choices: Choices = field(default_factory=dict)
    wish: QuietWish | None = None
    suppressed: frozenset[str] = frozenset()

    def zone(self, *nearer: str | None) -> ZoneInfo:
        """Return the zone that counts: the first of `nearer` that is one, else the tenant's, else UTC."""

        def names() -> Iterator[str | None]:
            yield from nearer
            yield self.tenant.time_zone

        return zone_or(names())


def tenant_from(  # noqa: PLR0917  the columns of a row
    time_zone: str | None,
    locale: str | None,
    start: time | None,
    end: time | None,
    channels: Switches | None,
    quiet: Switches | None,
) -> TenantPolicy:
    """Return a tenant's policy from its stored columns, which are all None for one that set nothing."""
    if time_zone is None or locale is None or start is None or end is None:
        return TenantPolicy()
    return TenantPolicy(channels or {}, quiet or {}, Window(start, end), time_zone, locale)


def category_from(
    name: str, mandatory: bool | None, channels: Switches | None, quiet: Switches | None
) -> CategoryPolicy:
    """Return a category's policy from its stored columns; `channels` is None for one that is not declared."""
    return category_policy(
        name, mandatory=mandatory, channels=channels, quiet=quiet, is_declared=channels is not None
    )
