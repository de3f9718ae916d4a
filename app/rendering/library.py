"""Template versions as the renderer knows them, and the compiled ones that were used last.

A version never changes, so what is kept of it is never out of date: in whatever process, only room ends its stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from app.rendering.bodies import Body, Content, find
from app.rendering.cache import Recent
from app.rendering.limits import RenderingError
from app.rendering.variables import Kind, Variable

VERSIONS_KEPT = 256
BODIES_KEPT = 2_048

Key = tuple[str, str, int]
"""Tenant, name and number of a version."""


class ChannelMissingError(RenderingError):
    """The template has no body for the channel in any language."""

    code = "no_body"


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One version of a template. `bodies` are the sources by language, channel and part."""

    tenant_id: str
    name: str
    number: int
    default_locale: str
    variables: Sequence[Variable]
    bodies: Mapping[str, Mapping[str, Mapping[str, str]]]

    @property
    def key(self) -> Key:
        """What names this version in every process."""
        return self.tenant_id, self.name, self.number

    def language(self, channel: str, locale: str | None) -> str | None:
        """Return the language in which a channel is written for a reader of `locale`, or None for no body."""
        return find(self.bodies, channel, [locale, self.default_locale] if locale else [self.default_locale])


class Library:
    """One a process. Its users find a version here, or load it and put it here."""

    def __init__(self) -> None:
        self._versions: Recent[Key, Version] = Recent(VERSIONS_KEPT)
        self._bodies: Recent[tuple[str, str, int, str, str], Body] = Recent(BODIES_KEPT)

    def find(self, key: Key) -> Version | None:
        """Return a version that is at hand."""
        return self._versions.find(key)

    def keep(self, version: Version) -> Version:
        """Put a version here and return it."""
        self._versions.keep(version.key, version)
        return version

    def render(
        self, version: Version, channel: str, locale: str | None, values: Mapping[str, Any], zone: tzinfo
    ) -> Content:
        """Return the content of a channel for a reader of `locale`; raise RenderingError.

        Dates and numbers are written as in the reader's own region, when the text is in a language of theirs.
        """
        language = version.language(channel, locale)
        if language is None:
            raise ChannelMissingError(f"the template has no body for {channel}")
        key = (*version.key, language, channel)
        body = self._bodies.get(key, lambda: Body(channel, version.bodies[language][channel]))
        return body.render(values, _region(language, locale), zone)


def _region(language: str, locale: str | None) -> str:
    return locale if locale and locale.partition("-")[0] == language.partition("-")[0] else language


def version_of(row: tuple[Any, ...]) -> Version:
    """Return a version from its stored form: tenant, name, number, default locale, variables, bodies."""
    tenant_id, name, number, default_locale, variables, bodies = row
    return Version(tenant_id, name, number, default_locale, variables_of(variables), bodies)


def variables_of(stored: Sequence[Mapping[str, Any]]) -> tuple[Variable, ...]:
    """Return variables from their stored form."""
    return tuple(
        Variable(
            each["name"],
            is_required=each.get("required", True),
            kind=Kind(each["type"]) if each.get("type") else None,
            description=each.get("description", ""),
        )
        for each in stored
    )
