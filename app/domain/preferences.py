"""Preferences: whether a person wants a category on a channel, and whether it may disturb them at night. Pure.

The most specific word wins, and what a person said wins over what the tenant said; a mandatory category is above
all of them. Each decision names the rule that made it, as the API shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.kinds import Channel, Priority
from app.domain.quiet_hours import DEFAULT_WINDOW, Window

ANY = "*"
"""Stands for every category, or for every channel."""

Switches = Mapping[str, bool]
"""On or off by channel name; ANY for those that are not named."""
Choices = Mapping[str, Switches]
"""What a person chose: by category, or ANY, and then by channel."""

_MANDATORY = frozenset({"security"})
_QUIET: Mapping[str, Switches] = {"marketing": {Channel.PUSH: True, Channel.SMS: True}}
"""What holds for categories that the tenant did not declare."""
DISTURBING = frozenset({Channel.PUSH, Channel.SMS})
"""The channels that a person's own quiet hours are about unless they say otherwise: those that ring."""


class Rule(StrEnum):
    """What decided whether a channel is on, the strongest first."""

    MANDATORY = "mandatory"
    USER_CATEGORY_CHANNEL = "user_category_channel"
    USER_CATEGORY = "user_category"
    USER_CHANNEL = "user_channel"
    USER_ALL = "user_all"
    TENANT_CATEGORY_CHANNEL = "tenant_category_channel"
    TENANT_CATEGORY = "tenant_category"
    TENANT_CHANNEL = "tenant_channel"
    TENANT_ALL = "tenant_all"
    DEFAULT = "default"


class QuietRule(StrEnum):
    """What decided whether a message waits for the end of the quiet hours, the strongest first."""

    HIGH_PRIORITY = "high_priority"
    MANDATORY = "mandatory"
    USER_OFF = "user_quiet_hours_off"
    USER = "user_quiet_hours"
    TENANT_CATEGORY = "tenant_category_quiet_hours"
    TENANT = "tenant_quiet_hours"
    DEFAULT = "default_quiet_hours"
    NONE = "no_quiet_hours"


@dataclass(frozen=True, slots=True)
class CategoryPolicy:
    """What a tenant says about one category. `is_declared` is False for what holds without a word of theirs."""

    name: str
    is_mandatory: bool = False
    channels: Switches = field(default_factory=dict)
    quiet: Switches = field(default_factory=dict)
    is_declared: bool = False


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """What a tenant says about everything that neither a category nor a person says anything about."""

    channels: Switches = field(default_factory=dict)
    quiet: Switches = field(default_factory=dict)
    window: Window = DEFAULT_WINDOW
    time_zone: str = "UTC"
    locale: str = "en"


@dataclass(frozen=True, slots=True)
class QuietWish:
    """A person's own quiet hours. No `window`: the tenant's. No `categories`: all of them."""

    is_on: bool = True
    window: Window | None = None
    channels: frozenset[str] = DISTURBING
    categories: frozenset[str] | None = None

    def covers(self, category: str, channel: Channel) -> bool:
        """Tell whether they are about this category and channel."""
        return channel in self.channels and (self.categories is None or category in self.categories)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a channel is on, and why."""

    allowed: bool
    rule: Rule


@dataclass(frozen=True, slots=True)
class Quiet:
    """The window that a message has to keep to, None for no window, and why."""

    window: Window | None
    rule: QuietRule


def category_policy(
    name: str,
    *,
    mandatory: bool | None = None,
    channels: Switches | None = None,
    quiet: Switches | None = None,
    is_declared: bool = False,
) -> CategoryPolicy:
    """Return the policy of a category: what the tenant declared, and our defaults for what it left out."""
    return CategoryPolicy(
        name,
        name in _MANDATORY if mandatory is None else mandatory,
        channels or {},
        quiet or {},
        is_declared,
    )


def resolve(choices: Choices, category: CategoryPolicy, tenant: TenantPolicy, channel: Channel) -> Decision:
    """Return whether a person gets a category on a channel. The order of precedence is the order of `Rule`."""
    if category.is_mandatory:
        return Decision(allowed=True, rule=Rule.MANDATORY)
    own, general = choices.get(category.name, {}), choices.get(ANY, {})
    for said, key, rule in (
        (own, channel, Rule.USER_CATEGORY_CHANNEL),
        (own, ANY, Rule.USER_CATEGORY),
        (general, channel, Rule.USER_CHANNEL),
        (general, ANY, Rule.USER_ALL),
        (category.channels, channel, Rule.TENANT_CATEGORY_CHANNEL),
        (category.channels, ANY, Rule.TENANT_CATEGORY),
        (tenant.channels, channel, Rule.TENANT_CHANNEL),
        (tenant.channels, ANY, Rule.TENANT_ALL),
    ):
        if (allowed := said.get(key)) is not None:
            return Decision(allowed, rule)
    return Decision(allowed=True, rule=Rule.DEFAULT)


def quiet_window(
    wish: QuietWish | None,
    category: CategoryPolicy,
    tenant: TenantPolicy,
    channel: Channel,
    priority: Priority = Priority.NORMAL,
) -> Quiet:
    """Return the window that a message keeps to. The order of precedence is the order of `QuietRule`.

    Hours that a person chose are theirs also where it is the tenant that asks for quiet.
    """
    if priority is Priority.HIGH:
        return Quiet(None, QuietRule.HIGH_PRIORITY)
    if category.is_mandatory:
        return Quiet(None, QuietRule.MANDATORY)
    window = tenant.window
    if wish is not None:
        if not wish.is_on:
            return Quiet(None, QuietRule.USER_OFF)
        window = wish.window or window
        if wish.covers(category.name, channel):
            return Quiet(window, QuietRule.USER)
    for said, rule in (
        (category.quiet, QuietRule.TENANT_CATEGORY),
        (tenant.quiet, QuietRule.TENANT),
        (_QUIET.get(category.name, {}), QuietRule.DEFAULT),
    ):
        asked = said.get(channel, said.get(ANY))
        if asked is not None:
            return Quiet(window if asked else None, rule)
    return Quiet(None, QuietRule.NONE)


def quiet_channels(category: CategoryPolicy) -> dict[str, bool]:
    """Return for which channels a category asks for quiet or refuses it, our defaults included."""
    return {str(channel): asked for channel, asked in _QUIET.get(category.name, {}).items()} | dict(category.quiet)


def wish_of(stored: Mapping[str, object] | None) -> QuietWish | None:
    """Return a person's quiet hours from what `as_stored` made of them."""
    if stored is None:
        return None
    start, end = stored.get("start"), stored.get("end")
    channels, categories = stored.get("channels"), stored.get("categories")
    return QuietWish(
        is_on=bool(stored.get("on", True)),
        window=Window.parse(start, end) if isinstance(start, str) and isinstance(end, str) else None,
        channels=frozenset(channels) if isinstance(channels, list) else DISTURBING,
        categories=frozenset(categories) if isinstance(categories, list) else None,
    )


def as_stored(wish: QuietWish | None) -> dict[str, object] | None:
    """Return a person's quiet hours as a JSON object."""
    if wish is None:
        return None
    start, end = wish.window.texts() if wish.window else (None, None)
    return {
        "on": wish.is_on,
        "start": start,
        "end": end,
        "channels": sorted(wish.channels),
        "categories": None if wish.categories is None else sorted(wish.categories),
    }
