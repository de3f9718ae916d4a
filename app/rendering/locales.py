"""Languages: their tags as BCP 47 writes them, and where a text is looked for when one of them lacks it."""

from functools import lru_cache

from babel import Locale, UnknownLocaleError
from babel.core import get_global

_ROOT = "root"
_TAG_LIMIT = 35
_SCRIPT_LETTERS = 4


class UnknownLanguageError(ValueError):
    """The tag names no language that is known here."""


@lru_cache(maxsize=256)
def parsed(tag: str) -> Locale:
    """Return what is known of a language and region; raise UnknownLanguageError."""
    if not 2 <= len(tag) <= _TAG_LIMIT:  # noqa: PLR2004  no language has a shorter tag
        raise UnknownLanguageError(tag)
    try:
        return Locale.parse(tag.replace("-", "_"))
    except (ValueError, UnknownLocaleError, TypeError):
        raise UnknownLanguageError(tag) from None


def canonical(tag: str) -> str:
    """Return the tag as BCP 47 writes it (`pt_br` → `pt-BR`); raise UnknownLanguageError."""
    parsed(tag)
    first, *rest = tag.replace("_", "-").split("-")
    return "-".join([first.lower(), *(_subtag(each) for each in rest)])


def _subtag(text: str) -> str:
    match len(text):
        case 2:
            return text.upper()
        case 4 if text.isalpha():
            return text.title()
        case _:
            return text.lower()


@lru_cache(maxsize=1024)
def chain(tag: str) -> tuple[str, ...]:
    """Return where to look for a text in this language, the best place first.

    Parents are those of CLDR: `pt-BR` → `pt`, `es-MX` → `es-419` → `es`, and `zh-TW` → `zh-Hant`, never the other
    script. An unknown tag has no place at all.
    """
    try:
        places = [canonical(tag)]
        here = str(parsed(tag))
    except UnknownLanguageError:
        return ()
    while here != _ROOT:
        if (place := here.replace("_", "-")) not in places:
            places.append(place)
        here = _parent(here)
    return tuple(places)


def _parent(identifier: str) -> str:
    if found := get_global("parent_exceptions").get(identifier):
        return str(found)
    parent, _, last = identifier.rpartition("_")
    is_script = len(last) == _SCRIPT_LETTERS
    if is_script and last not in get_global("likely_subtags").get(parent, last):
        return _ROOT
    return parent or _ROOT
