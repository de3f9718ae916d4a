"""Making any text fit to travel: no surrogates, no control characters in headers."""

import re

_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
SUBJECT_CHARACTERS = 255


def encodable(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD: UTF-8 cannot carry them."""
    return _SURROGATES.sub("\ufffd", text)


def one_line(text: str, limit: int = SUBJECT_CHARACTERS) -> str:
    """Return the text as one header line: controls and runs of white space folded to a space, then cut."""
    folded = " ".join(_CONTROLS.sub(" ", encodable(text)).split())
    return folded if len(folded) <= limit else folded[: limit - 1].rstrip() + "…"
