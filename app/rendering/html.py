"""HTML made harmless for mail programs, and the plain text that goes with it.

What is kept is a list: text, links, pictures, tables and the inline styles that mails are laid out with. Scripts,
forms, frames, style sheets, event handlers, `javascript:` and `data:` addresses, and styles that load something or
lay text over other text, are not on it. Cleaning what was cleaned changes nothing.
"""

import re
from collections import Counter
from html.parser import HTMLParser

import nh3

from app.rendering.limits import LimitError

OPEN_TAGS = 500
TAGS = 20_000

_TAGS = (nh3.ALLOWED_TAGS - {"area", "map", "details", "summary"}) | {"font", "tfoot"}
_CLEAN_CONTENT = {"script", "style", "title", "head", "template", "noscript", "iframe", "object", "svg", "math",
                  "textarea", "select", "button", "form", "xmp", "plaintext", "noembed", "noframes"}  # fmt: skip
_LAYOUT = {"align", "valign", "bgcolor", "width", "height"}
_ATTRIBUTES = {tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()}
for _tag in ("table", "tbody", "thead", "tfoot", "tr", "td", "th", "col", "colgroup"):
    _ATTRIBUTES.setdefault(_tag, set()).update(_LAYOUT)
_ATTRIBUTES["table"] |= {"border", "cellpadding", "cellspacing", "role"}
_ATTRIBUTES["font"] = {"color", "face", "size"}
_ATTRIBUTES["a"] |= {"title"}
_ATTRIBUTES["img"] |= {"title", "border"}
_ATTRIBUTES["*"] = {"style", "dir", "lang"}
_STYLES = {
    *("background-color", "border", "border-collapse", "border-color", "border-radius", "border-spacing"),
    *("border-style", "border-width", "border-bottom", "border-left", "border-right", "border-top", "color"),
    *("direction", "display", "font", "font-family", "font-size", "font-style", "font-weight", "height"),
    *("letter-spacing", "line-height", "margin", "margin-bottom", "margin-left", "margin-right", "margin-top"),
    *("max-width", "min-width", "padding", "padding-bottom", "padding-left", "padding-right", "padding-top"),
    *("table-layout", "text-align", "text-decoration", "text-transform", "vertical-align", "white-space", "width"),
    *("word-break", "word-spacing"),
}
_SCHEMES = {"http", "https", "mailto", "tel", "sms", "cid"}
_CLEANER = nh3.Cleaner(
    tags=_TAGS,
    clean_content_tags=_CLEAN_CONTENT,
    attributes=_ATTRIBUTES,
    url_schemes=_SCHEMES,
    filter_style_properties=_STYLES,
    url_relative="deny",
)

_BLOCKS = frozenset(
    {"p", "div", "table", "tr", "ul", "ol", "dl", "dt", "dd", "blockquote", "pre", "figure", "header", "footer"}
    | {
        "article",
        "aside",
        "nav",
        "center",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "li",
        "hr",
        "caption",
        "figcaption",
    }
)
_APART = frozenset({"p", "blockquote", "table", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "figure"})
_SPACE = re.compile(r"[ \t\r\n\f]+")
_BLANK_LINES = re.compile(r"\n{3,}")
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"})


def sanitise(html: str) -> str:
    """Return the HTML without anything that could act, load a script, or pretend to be the mail program.

    Raises LimitError for HTML that would keep the parser busy.
    """
    _check_nesting(html)
    return _CLEANER.clean(html)


def _check_nesting(html: str) -> None:
    """Refuse too many tags that are open at once: the parser looks at each of them again for every new one.

    A closing tag counts against its own name only, since one that closes nothing is ignored by the parser too.
    """
    open_tags: Counter[str] = Counter()
    count = total = 0
    for match in _TAG.finditer(html):
        closing, name = match[1], match[2].lower()
        total += 1
        if name in _VOID:
            continue
        if not closing:
            open_tags[name] += 1
            count += 1
        elif open_tags[name]:
            open_tags[name] -= 1
            count -= 1
        if count > OPEN_TAGS:
            raise LimitError(f"more than {OPEN_TAGS} tags of the HTML are open at once")
    if total > TAGS:
        raise LimitError(f"more than {TAGS} tags in the HTML")


def has_content(html: str) -> bool:
    """Tell whether clean HTML shows anything: a letter or a picture."""
    return "<img" in html or bool(text_of(html))


def text_of(html: str) -> str:
    """Return clean HTML as plain text: blocks on lines of their own, links with their addresses behind them."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._links: list[tuple[str, int]] = []
        self._numbers: list[int] = []
        self._last_bullet = ""
        self._verbatim = 0
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "br":
            self._pieces.append("\n")
        elif tag == "img":
            self._pieces.append(given.get("alt") or "")
        elif tag == "a":
            self._links.append((given.get("href") or "", len(self._pieces)))
        elif tag in {"td", "th"}:
            self._pieces.append(" " if self._cells else "")
            self._cells += 1
        elif tag in _BLOCKS:
            self._begin(tag)

    def _break(self, tag: str) -> None:
        """Begin a line, unless one has just begun; some blocks stand apart, except inside a list."""
        if tag in _APART and not (self._numbers and tag in {"ul", "ol", "p"}):
            self._pieces.append("\n\n")
        elif not "".join(self._pieces[-2:]).endswith("\n"):
            self._pieces.append("\n")

    def _begin(self, tag: str) -> None:
        if tag != "p" or not self._is_after_bullet():
            self._break(tag)
        match tag:
            case "tr":
                self._cells = 0
            case "ul":
                self._numbers.append(-1)
            case "ol":
                self._numbers.append(0)
            case "li":
                self._pieces.append(self._bullet())
            case "hr":
                self._pieces.append("---\n")
            case "pre":
                self._verbatim += 1

    def _is_after_bullet(self) -> bool:
        return bool(self._numbers) and bool(self._pieces) and self._pieces[-1] == self._last_bullet

    def _bullet(self) -> str:
        self._last_bullet = self._next_bullet()
        return self._last_bullet

    def _next_bullet(self) -> str:
        if not self._numbers or self._numbers[-1] < 0:
            return "- "
        self._numbers[-1] += 1
        return f"{self._numbers[-1]}. "

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._links:
            address, start = self._links.pop()
            shown = "".join(self._pieces[start:]).strip()
            address = address.removeprefix("mailto:").removeprefix("tel:")
            if address and address != shown:
                self._pieces.append(f" ({address})" if shown else address)
        elif tag in _BLOCKS:
            if tag in {"ul", "ol"} and self._numbers:
                self._numbers.pop()
            self._break(tag)
            if tag == "pre":
                self._verbatim = max(self._verbatim - 1, 0)

    def handle_data(self, data: str) -> None:
        self._pieces.append(data if self._verbatim else _SPACE.sub(" ", data))

    def text(self) -> str:
        lines = "".join(self._pieces).replace("\xa0", " ").split("\n")
        # Spaces outside <pre> were made one, so a line that begins with more of them was indented on purpose.
        tidy = "\n".join(line.rstrip() if line.startswith("  ") else line.strip() for line in lines)
        return _BLANK_LINES.sub("\n\n", tidy).strip()
