"""Looking at a template before it is sent: what each channel would carry, and what to think about before.

Nothing is stored or sent. A value that is missing is replaced by one that shows its place, so that a preview can
be had before there is any payload.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from app.domain.callers import Caller
from app.rendering import push, sms
from app.rendering.bodies import Content
from app.rendering.library import Library, Version, variables_of
from app.rendering.limits import RenderingError
from app.rendering.locales import UnknownLanguageError, canonical
from app.rendering.variables import Kind, Variable, check
from app.services.refusal import Problem, Refused
from app.services.templates.draft import Draft, checked
from app.services.templates.manage import ManageTemplates

_SEGMENTS_USUAL = 1
_ODD_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Wish:
    """What to show: for a reader of `locale` in `time_zone`, with these values; a version, or a draft instead."""

    locale: str | None
    payload: Mapping[str, Any]
    time_zone: str = "UTC"
    number: int | None = None
    draft: Draft | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """Something to think about; `channel` is None when it is about all of them."""

    code: str
    channel: str | None
    message: str


class PreviewTemplate:
    """The use case."""

    def __init__(self, manage: ManageTemplates, library: Library) -> None:
        self._manage = manage
        self._library = library

    def show(self, caller: Caller, name: str, wish: Wish) -> dict[str, Any]:
        """Return what the API shows; raise NotFound, or Refused for a draft, language or zone that is wrong."""
        version = self._version(caller, name, wish)
        locale = None if wish.locale is None else known_locale(wish.locale)
        zone = known_zone(wish.time_zone)
        filled = check(version.variables, wish.payload)
        warnings = [
            Warned("VARIABLE_MISSING", None, f"{each} has no value; an example stands in its place")
            for each in filled.missing
        ] + [Warned("VARIABLE_MISFIT", None, f"{each} {what}") for each, what in filled.misfits.items()]
        values = dict(filled.values) | _examples(version.variables, [*filled.missing, *filled.misfits])
        # A draft has no number that could tell it from the next one, so it is not kept.
        library = self._library if wish.draft is None else Library()
        channels: dict[str, Any] = {}
        for channel in sorted({each for bodies in version.bodies.values() for each in bodies}):
            shown, found = _channel(library, version, channel, locale=locale, values=values, zone=zone)
            channels[channel] = shown
            warnings += found
        return {
            "name": name,
            "version": version.number or None,
            "locale": locale or version.default_locale,
            "channels": channels,
            "warnings": [asdict(each) for each in warnings],
        }

    def _version(self, caller: Caller, name: str, wish: Wish) -> Version:
        if wish.draft is not None:
            return checked(wish.draft).version(caller.tenant_id, name, 0)
        row = self._manage.find(caller, name, wish.number).version
        return Version(
            caller.tenant_id, name, row.number, row.default_locale, variables_of(row.variables), row.bodies
        )


def known_locale(tag: str) -> str:
    """Return a language tag in its usual form; raise Refused for one that is not known."""
    try:
        return canonical(tag)
    except UnknownLanguageError:
        problem = Problem("locale", "is no language that is known; write it like pt-BR")
        raise Refused("DOMAIN_LOCALE_UNKNOWN", "There is no such language.", [problem]) from None


def known_zone(name: str) -> ZoneInfo:
    """Return a zone of the IANA database; raise Refused for one that is not in it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        problem = Problem("time_zone", "is no zone of the IANA database; write it like Europe/Lisbon")
        raise Refused("DOMAIN_TIME_ZONE_UNKNOWN", "There is no such time zone.", [problem]) from None


def _channel(
    library: Library,
    version: Version,
    channel: str,
    *,
    locale: str | None,
    values: Mapping[str, Any],
    zone: ZoneInfo,
) -> tuple[dict[str, Any], list[Warned]]:
    language = version.language(channel, locale)
    warnings: list[Warned] = []
    if locale is not None and language != locale:
        warnings.append(Warned("LOCALE_FALLBACK", channel, f"there is no body in {locale}; {language} is used"))
    try:
        content = library.render(version, channel, locale, values, zone)
    except RenderingError as error:
        warnings.append(Warned("RENDERING_FAILED", channel, str(error)))
        return {"locale": language, "title": None, "body": None}, warnings
    shown: dict[str, Any] = {"locale": language, "title": content.title, "body": content.body}
    match channel:
        case "EMAIL":
            shown["html"] = content.html
            if content.was_cleaned:
                warnings.append(Warned("HTML_CHANGED", channel, "cleaning took something out of the HTML"))
        case "SMS":
            shown["segments"], found = _segments(content)
            warnings += found
        case "PUSH":
            shown["bytes"] = push.size(content.title, content.body)
            if shown["bytes"] > push.PUSH_BYTES:
                warnings.append(
                    Warned("PUSH_TOO_LARGE", channel, f"{shown['bytes']} bytes; {push.PUSH_BYTES} are taken")
                )
    return shown, warnings


def _segments(content: Content) -> tuple[dict[str, Any], list[Warned]]:
    counted = sms.segments(content.body)
    warnings: list[Warned] = []
    if counted.count > _SEGMENTS_USUAL:
        warnings.append(Warned("SMS_SEGMENTS", "SMS", f"it is sent, and charged, as {counted.count} messages"))
    if counted.odd:
        letters = " ".join(counted.odd[:_ODD_SHOWN])
        warnings.append(
            Warned("SMS_ALPHABET", "SMS", f"70 letters a message instead of 160, because of: {letters}")
        )
    return {"alphabet": counted.alphabet, "units": counted.units, "count": counted.count}, warnings


def _examples(variables: Sequence[Variable], names: Sequence[str]) -> dict[str, Any]:
    """Return a value of the right type for each name, which shows where it stands."""
    now = datetime.now(UTC)
    by_kind: Mapping[Kind | None, Any] = {
        Kind.NUMBER: 0,
        Kind.BOOLEAN: False,
        Kind.DATE: now.date(),
        Kind.DATETIME: now,
        Kind.LIST: [],
        Kind.OBJECT: {},
    }
    return {each.name: by_kind.get(each.kind, f"[{each.name}]") for each in variables if each.name in names}
