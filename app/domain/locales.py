"""Locales of users: BCP 47 tags of language, script, region and variants, in the spelling that the standard gives.

What else BCP 47 allows (extensions, private use, grandfathered tags) chooses no template and is refused, as is the
underscore of POSIX: `pt_BR` beside `pt-BR` would be two locales of one person. Whether a language exists is not
asked; one without a template falls back to the tenant's.
"""

import re

_TAG = re.compile(
    r"(?P<language>[A-Za-z]{2,3})"
    r"(?:-(?P<script>[A-Za-z]{4}))?"
    r"(?:-(?P<region>[A-Za-z]{2}|[0-9]{3}))?"
    r"(?P<variants>(?:-(?:[A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*)",
    re.ASCII,
)
_LIMIT = 35
REGION = re.compile(r"[A-Z]{2}", re.ASCII)


class UnknownLocaleError(ValueError):
    """The text is no locale that a user can have."""


def locale(text: str) -> str:
    """Return a locale as it is stored, such as `pt-BR` for `PT-br`; raise UnknownLocaleError."""
    match = _TAG.fullmatch(text)
    if match is None or len(text) > _LIMIT:
        raise UnknownLocaleError("not a BCP 47 tag of language, script and region, such as pt-BR")
    parts = [match["language"].lower()]
    if match["script"]:
        parts.append(match["script"].title())
    if match["region"]:
        parts.append(match["region"].upper())
    variants = match["variants"].lower().split("-")[1:]
    if len(set(variants)) != len(variants):
        raise UnknownLocaleError("names a variant twice")
    return "-".join([*parts, *variants])


def region_of(tag: str | None) -> str | None:
    """Return the two letters of a locale's country, None where it names none."""
    match = _TAG.fullmatch(tag) if tag else None
    region = match["region"] if match else None
    return region.upper() if region and REGION.fullmatch(region.upper()) else None
