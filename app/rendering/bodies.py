"""From the bodies of a template version to what a channel carries: a title, a text, and HTML for e-mail.

Invariants: a title is one line; title and text are within their limits; HTML was cleaned after it was rendered,
so no value can bring markup in; an e-mail always has a text. What comes out empty is refused here, before any
provider.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from app.rendering import filters, international
from app.rendering.engine import Compiled, Environment, Run
from app.rendering.html import has_content, sanitise, text_of
from app.rendering.limits import (
    OUTPUT_CHARACTERS,
    Budget,
    Fault,
    LimitError,
    RenderingError,
    TemplateSyntaxFault,
)
from app.rendering.locales import chain, parsed

TITLE_CHARACTERS = 255
BODY_CHARACTERS = 10_000
FIELDS: Mapping[str, tuple[str, ...]] = {
    "EMAIL": ("subject", "text", "html"),
    "SMS": ("text",),
    "PUSH": ("title", "body"),
    "IN_APP": ("title", "body"),
}
"""The parts of a channel's body, in the order in which they are rendered."""

_TITLES = frozenset({"subject", "title"})
_TITLE_SOURCE = 4_000
_NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TAG = re.compile(r"<[a-zA-Z]")
_REL = 'rel="noopener noreferrer"'
_FRAME = re.compile(r"<(?:!doctype|/?html|/?head|/?body|meta|/?title)\b[^>]*>", re.IGNORECASE)
# Languages put these between a number and its unit. In an SMS one of them would make all letters take two bytes.
_NARROW_SPACES = str.maketrans({"\u202f": " ", "\u00a0": " ", "\u2009": " "})
_PLAIN = Environment({**filters.TEXT, **international.FILTERS}, is_html=False)
_HTML = Environment({**filters.HTML, **international.FILTERS}, is_html=True)


class EmptyContentError(RenderingError):
    """The template comes to nothing for these values."""

    code = "empty_content"


@dataclass(frozen=True, slots=True)
class Content:
    """What a channel carries. `html` is clean; `was_cleaned` when cleaning took something out of it."""

    title: str
    body: str
    html: str | None = None
    was_cleaned: bool = False


class Body:
    """The compiled body of one channel in one language."""

    __slots__ = ("_channel", "_parts")

    def __init__(self, channel: str, sources: Mapping[str, str], variables: frozenset[str] | None = None) -> None:
        """Compile each part; raise FieldFaults. With `variables`, using any other name is a fault."""
        self._channel = channel
        self._parts: dict[str, Compiled] = {}
        faults: dict[str, list[Fault]] = {}
        for name in FIELDS[channel]:
            source = sources.get(name)
            if source is None:
                continue
            try:
                self._parts[name] = _compiled(name, source, variables)
            except TemplateSyntaxFault as error:
                faults[name] = error.faults
        if faults:
            raise FieldFaults(faults)

    def render(self, values: Mapping[str, Any], locale: str, zone: tzinfo) -> Content:
        """Return the content for `values`; raise RenderingError. All parts share one budget."""
        run = Run(Budget(), parsed(locale), zone)
        title, body, html, was_cleaned = "", "", None, False
        for name, part in self._parts.items():
            text = part.render(values, run, OUTPUT_CHARACTERS)
            if name == "html":
                html = sanitise(text)
                was_cleaned = _is_poorer(html, text)
            elif name in _TITLES:
                title = _title(text)
            else:
                body = _body(text.translate(_NARROW_SPACES) if self._channel == "SMS" else text)
        return Content(title, *_complete(self._channel, title, body, html), was_cleaned)


class FieldFaults(Exception):  # noqa: N818  faults of a template, not of ours
    """Parts of a body that cannot be kept: the faults of each by its name."""

    def __init__(self, faults: Mapping[str, Sequence[Fault]]) -> None:
        super().__init__(", ".join(faults))
        self.faults = faults


def _compiled(name: str, source: str, variables: frozenset[str] | None) -> Compiled:
    if name in _TITLES and len(source) > _TITLE_SOURCE:
        raise TemplateSyntaxFault([Fault(0, f"longer than {_TITLE_SOURCE} characters")])
    return Compiled(_HTML if name == "html" else _PLAIN, source, variables)


def one_line(text: str) -> str:
    """Return a text as one line: what would break it is a space."""
    return _NOT_ONE_LINE.sub(" ", text).strip()


def alternative(html: str) -> str:
    """Return the plain text that goes with clean HTML, cut where a body ends."""
    text = text_of(html)
    return text if len(text) <= BODY_CHARACTERS else text[: BODY_CHARACTERS - 1].rstrip() + "…"


def find(bodies: Mapping[str, Mapping[str, Any]], channel: str, wanted: Sequence[str]) -> str | None:
    """Return the first language of `wanted`, each with its parents, that has a body for the channel, or None."""
    for tag in wanted:
        for place in chain(tag):
            if channel in bodies.get(place, ()):
                return place
    return None


def _title(text: str) -> str:
    title = one_line(text)
    if len(title) > TITLE_CHARACTERS:
        raise LimitError(f"a title of more than {TITLE_CHARACTERS} characters")
    return title


def _body(text: str) -> str:
    body = _CONTROL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if len(body) > BODY_CHARACTERS:
        raise LimitError(f"a text of more than {BODY_CHARACTERS} characters")
    return body


def _complete(channel: str, title: str, body: str, html: str | None) -> tuple[str, str | None]:
    if html is not None and not has_content(html):
        html = None
    if html is not None and not body:
        body = alternative(html) or title
    if not body:
        raise EmptyContentError(f"the {channel} body comes to nothing")
    if channel == "EMAIL" and not title:
        raise EmptyContentError("the subject comes to nothing")
    return body, html


def _is_poorer(clean: str, raw: str) -> bool:
    """Tell whether cleaning took anything but the frame of a document: a tag, an attribute or a style."""
    return any(before > after for before, after in zip(_marks(_FRAME.sub("", raw)), _marks(clean), strict=True))


def _marks(html: str) -> tuple[int, int, int]:
    return len(_TAG.findall(html)), html.count("=") - html.count(_REL), html.count(":")
