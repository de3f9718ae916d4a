"""Properties of rendering that hold for any text and any template."""

import re
import time
from contextlib import suppress
from zoneinfo import ZoneInfo

import html5lib
from hypothesis import given
from hypothesis import strategies as st

from app.rendering import sms
from app.rendering.bodies import Body, FieldFaults, one_line
from app.rendering.html import sanitise, text_of
from app.rendering.limits import RenderingError

PIECES = st.lists(
    st.sampled_from(
        ["<p>", "</p>", "<b>", "</b>", "<table>", "<td>", "</table>", "<svg>", "</svg>", "<math>", "<mtext>",
         "<mglyph>", "<style>", "</style>", "<!--", "-->", "<img src=x onerror=alert(1)>",
         "<a href='javascript:x'>", "</a>", "<a href='https://x.example'>", "<noscript>", "</noscript>", "<title>",
         "</title>", "<form>", "</form>", "<template>", "</template>", "&lt;script&gt;", "<script>",
         "</script>", "<![CDATA[", "]]>", "'",
         '"', "<p style='color:red;position:fixed'>",
         "<annotation-xml encoding='text/html'>", "<foreignObject>",
         "<select>", "<textarea>", "</textarea>", "&#x0;", "\0", "x", " ", "<", ">", "&", "=", "é", "\u2028", "😀"]
    )
    | st.text(max_size=8),
    max_size=16,
).map("".join)  # fmt: skip


@given(PIECES)
def test_cleaning_twice_is_cleaning_once(html: str) -> None:
    """Case J13. Whatever comes out is inert, by another parser's reading, and stays as it is."""
    clean = sanitise(html)
    assert sanitise(clean) == clean
    tree = html5lib.parse(clean, treebuilder="etree", namespaceHTMLElements=False)
    for element in tree.iter():
        assert element.tag not in {"script", "style", "svg", "math", "iframe", "form"}
        for name, value in element.attrib.items():
            assert not str(name).startswith("on")
            assert "javascript" not in value.lower()
    text_of(clean)


@given(st.text(max_size=100))
def test_a_value_brings_no_markup_into_html(value: str) -> None:
    """What a value says is read as text: the page's elements are those of the template."""
    content = Body("EMAIL", {"subject": "x", "html": "<p>{{ x }}</p><i>y</i>"}).render(
        {"x": value}, "en", ZoneInfo("UTC")
    )
    assert content.html is not None
    assert re.findall(r"<(\w+)", content.html) == ["p", "i"]


@given(st.text(max_size=50))
def test_a_title_is_one_line(value: str) -> None:
    """Line breaks and control characters are spaces, wherever they come from."""
    line = one_line(value)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", line)
    assert line.splitlines() in ([], [line])


FRAGMENTS = st.lists(
    st.sampled_from(
        ["{{ x }}", "{% for i in range(9999) %}", "{% for j in x %}", "{% endfor %}", "{% if x %}", "{% endif %}",
         "{% set x = x ~ x %}", "{% set x = x + x %}", "{% set x = [x, x] %}", "{{ x|join(x) }}", "{{ x * x }}",
         "{% set x = x|replace('a', x) %}", "{{ x.__class__ }}", "{{ x|sort }}", "{{ x == x }}", "{{ x|sum }}",
         "{% set x = x|sum * 9 %}", "{{ x|length }}", "{{ x[::-1] }}", "{{ x|upper }}", "a" * 50, "\n",
         "{{ loop }}"]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(FRAGMENTS, st.sampled_from(["a" * 500, ["a"] * 200, {"a": {"a": "a"}}, 7, None]))
def test_any_template_ends_in_time(source: str, value: object) -> None:
    """It is refused, it fails, or it gives a text of bounded size; each within seconds."""
    started = time.perf_counter()
    with suppress(FieldFaults, RenderingError):
        body = Body("SMS", {"text": source}, frozenset({"x"}))
        assert len(body.render({"x": value}, "en", ZoneInfo("UTC")).body) <= 10_000
    assert time.perf_counter() - started < 5


@given(st.text(alphabet=st.sampled_from("aé€[]^中😀\u202f"), max_size=400))
def test_segments_hold_their_text(text: str) -> None:
    """No more messages than letters need, and no fewer than the units fill."""
    counted = sms.segments(text)
    alone, together = (160, 153) if counted.alphabet == "GSM-7" else (70, 67)
    if counted.units <= alone:
        assert counted.count == (1 if text else 0)
    else:
        # A letter of two units that does not fit moves to the next part, so a part may lack one unit.
        assert -(-counted.units // together) <= counted.count <= -(-counted.units // (together - 1))
