"""What a person chose: shown with its effect, replaced, and changed in parts.

A change is worked out from what is stored and written only if that still stands, so two changes at the same time
are both there in the end.
"""

from collections.abc import Callable, Mapping
from typing import Any

from app.db import preferences
from app.db.preferences import PreferenceRow
from app.db.requests import Cursor, RequestPool
from app.domain.callers import Caller
from app.domain.circumstances import category_from, tenant_from
from app.domain.instants import instant
from app.domain.kinds import Channel
from app.domain.preferences import (
    ANY,
    CategoryPolicy,
    Choices,
    QuietWish,
    TenantPolicy,
    as_stored,
    category_policy,
    quiet_window,
    resolve,
    wish_of,
)
from app.domain.quiet_hours import DEFAULT_WINDOW
from app.domain.zones import zone_or
from app.observability.logging import get_logger
from app.services.refusal import Problem, Refused, Unavailable

Patch = Mapping[str, Mapping[str, bool | None] | None]
"""Choices to be changed: None takes a word back, about a whole category or about one channel."""
_Stored = dict[str, dict[str, bool]]

UNCHANGED = QuietWish(is_on=False, channels=frozenset({"unchanged"}))
"""Stands for the quiet hours of a change that says nothing about them."""
_BUILT_IN = ("marketing", "security")
_CATEGORIES_LIMIT = 200
_TRIES = 5
_log = get_logger(__name__)


class Preferences:
    """The use cases. Each may be repeated on another connection when its own turns out to be dead."""

    def __init__(self, pool: RequestPool) -> None:
        self._pool = pool

    def show(self, tenant_id: str, user_id: str) -> dict[str, Any]:
        """Return what a person chose and what comes of it."""
        return _view(user_id, self._pool.run(lambda cursor: preferences.read(cursor, tenant_id, user_id)))

    def replace(self, caller: Caller, user_id: str, choices: Choices, quiet: QuietWish | None) -> dict[str, Any]:
        """Put choices in the place of all that there were; raise Refused for a mandatory category."""
        kept = {category: dict(said) for category, said in choices.items() if said}
        return self._change(caller, user_id, choices, lambda _row: (kept, quiet))

    def change(
        self, caller: Caller, user_id: str, patch: Patch, quiet: QuietWish | None = UNCHANGED
    ) -> dict[str, Any]:
        """Change some choices and leave the others; raise Refused for a mandatory category."""

        def merged(row: PreferenceRow) -> tuple[_Stored, QuietWish | None]:
            return _merge(row.choices, patch), wish_of(row.quiet_hours) if quiet is UNCHANGED else quiet

        said = {
            category: {channel: on for channel, on in switches.items() if on is not None}
            for category, switches in patch.items()
            if switches is not None
        }
        return self._change(caller, user_id, said, merged)

    def _change(
        self,
        caller: Caller,
        user_id: str,
        said: Choices,
        work: Callable[[PreferenceRow], tuple[_Stored, QuietWish | None]],
    ) -> dict[str, Any]:
        def attempt(cursor: Cursor) -> PreferenceRow | None:
            for _ in range(_TRIES):
                row = preferences.read(cursor, caller.tenant_id, user_id)
                _refuse_mandatory(said, _categories(row))
                choices, quiet = work(row)
                if len(choices) > _CATEGORIES_LIMIT:
                    raise Refused(
                        "DOMAIN_PREFERENCES_LIMIT",
                        f"A person can choose for at most {_CATEGORIES_LIMIT} categories.",
                    )
                if preferences.write(cursor, caller.tenant_id, user_id, (choices, as_stored(quiet)), row.revision):
                    return preferences.read(cursor, caller.tenant_id, user_id)
            return None

        row = self._pool.run(attempt)
        if row is None:
            raise Unavailable("INFRA_CONTENDED", "Others change the same preferences; repeat the request.", 1)
        _log.info("preferences_changed", tenant_id=caller.tenant_id, by=caller.subject)
        return _view(user_id, row)


def _tenant_of(row: PreferenceRow) -> TenantPolicy:
    columns = (row.tenant_zone, row.tenant_locale, row.quiet_start, row.quiet_end)
    return tenant_from(*columns, row.tenant_channels, row.tenant_quiet)


def _categories(row: PreferenceRow) -> dict[str, CategoryPolicy]:
    return {
        name: category_from(name, mandatory, channels, quiet)
        for name, mandatory, channels, quiet in row.categories
    }


def _refuse_mandatory(said: Choices, declared: Mapping[str, CategoryPolicy]) -> None:
    problems = [
        Problem(f"choices.{category}.{channel}", "is mandatory and cannot be switched off")
        for category, switches in said.items()
        if category != ANY and (declared.get(category) or category_policy(category)).is_mandatory
        for channel, on in switches.items()
        if not on
    ]
    if problems:
        raise Refused("DOMAIN_CATEGORY_MANDATORY", "A mandatory category cannot be switched off.", problems[:20])


def _merge(stored: _Stored, patch: Patch) -> _Stored:
    merged = {category: dict(switches) for category, switches in stored.items()}
    for category, switches in patch.items():
        own = merged.pop(category, {})
        if switches is None:
            continue
        for channel, on in switches.items():
            own.pop(channel, None)
            if on is not None:
                own[channel] = on
        if own:
            merged[category] = own
    return merged


def _view(user_id: str, row: PreferenceRow) -> dict[str, Any]:
    tenant, declared, wish = _tenant_of(row), _categories(row), wish_of(row.quiet_hours)
    names = sorted({*declared, *_BUILT_IN, *row.choices} - {ANY})
    where = zone_or(iter([row.user_zone, tenant.time_zone])).key
    shown = [declared.get(name) or category_policy(name) for name in names]
    return {
        "user_id": user_id,
        "choices": row.choices,
        "quiet_hours": row.quiet_hours,
        "time_zone": where,
        "updated_at": None if row.updated_at is None else instant(row.updated_at),
        "effective": [_effect(row.choices, each, tenant, wish) for each in (*shown, category_policy(ANY))],
    }


def _effect(
    choices: Choices, category: CategoryPolicy, tenant: TenantPolicy, wish: QuietWish | None
) -> dict[str, Any]:
    channels = {}
    for channel in Channel:
        decision = resolve(choices, category, tenant, channel)
        quiet = quiet_window(wish, category, tenant, channel)
        start, end = (quiet.window or DEFAULT_WINDOW).texts()
        channels[channel.value] = {
            "allowed": decision.allowed,
            "rule": decision.rule,
            "quiet_hours": None if quiet.window is None else {"start": start, "end": end},
            "quiet_rule": quiet.rule,
        }
    return {"category": category.name, "mandatory": category.is_mandatory, "channels": channels}
