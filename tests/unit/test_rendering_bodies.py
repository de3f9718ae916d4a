"""Contents of channels: what a body gives for values, what is refused, and what an SMS or a push costs."""

import time
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.rendering import push, sms
from app.rendering.bodies import Body, Content, EmptyContentError, FieldFaults
from app.rendering.cache import Recent
from app.rendering.library import ChannelMissingError, Library, Version, variables_of
from app.rendering.limits import LimitError
from app.rendering.variables import Kind, Variable, check

UTC = ZoneInfo("UTC")


def content(channel: str, locale: str = "en", values: dict[str, Any] | None = None, **parts: str) -> Content:
    return Body(channel, parts).render(values or {}, locale, UTC)


def test_a_title_is_one_line_and_a_body_has_no_control_characters() -> None:
    """A value with line breaks cannot add a header, nor a bell ring."""
    made = content("PUSH", title="a {{ x }}", body="b {{ x }}", values={"x": "1\r\nBcc: 2\u2028\x07"})
    assert made == Content("a 1 Bcc: 2", "b 1\nBcc: 2")
    assert content("SMS", text="{{ x }}", values={"x": "1\x07\r2"}).body == "1 \n2"


def test_an_email_has_a_text_beside_its_html() -> None:
    """Its own, or one made of the HTML."""
    made = content("EMAIL", subject="s", html="<p>Hi <b>{{ x }}</b></p><script>1</script>", values={"x": "<i>"})
    assert made == Content("s", "Hi <i>", "<p>Hi <b>&lt;i&gt;</b></p>", was_cleaned=True)
    both = content("EMAIL", subject="s", text="t", html="<p>h</p>")
    assert (both.body, both.html, both.was_cleaned) == ("t", "<p>h</p>", False)
    assert content("EMAIL", subject="s", text="t").html is None
    long = content("EMAIL", subject="s", html="<p>" + "x" * 12_000 + "</p>")
    assert len(long.body) == 10_000
    frame = "<!doctype html><html><head><title></title></head><body><p><a href='https://x.example'>h</a></p></body></html>"
    assert not content("EMAIL", subject="s", html=frame).was_cleaned
    assert content("EMAIL", subject="s", html="<p onclick='x'>h</p>").was_cleaned
    assert content("EMAIL", subject="s", html="<p style='position:fixed;color:red'>h</p>").was_cleaned


@pytest.mark.parametrize(
    ("channel", "parts"),
    [
        ("SMS", {"text": "{% if x %}Hello{% endif %}"}),
        ("SMS", {"text": "  \n{{ x }}"}),
        ("PUSH", {"title": "t", "body": "{{ x }}"}),
        ("EMAIL", {"subject": "{{ x }}", "text": "t"}),
        ("EMAIL", {"subject": "{{ x }}\n", "text": "t"}),
        ("EMAIL", {"subject": "", "html": "<p>{{ x }}</p>"}),
    ],
)
def test_what_comes_to_nothing_is_refused(channel: str, parts: dict[str, str]) -> None:
    """Case G17. Found while rendering, before any provider is asked."""
    with pytest.raises(EmptyContentError):
        content(channel, values={"x": None}, **parts)


def test_what_is_too_long_is_refused() -> None:
    """255 characters of a title and 10,000 of a body, after rendering."""
    assert len(content("PUSH", title="{{ x }}", body="b", values={"x": "x" * 255}).title) == 255
    with pytest.raises(LimitError, match="more than 255"):
        content("PUSH", title="{{ x }}", body="b", values={"x": "x" * 256})
    with pytest.raises(LimitError, match="more than 10000"):
        content("SMS", text="{{ x }}", values={"x": "x" * 10_001})


def test_an_sms_is_not_made_dearer_by_the_language() -> None:
    """English writes 9:00 AM with a space that only UCS-2 has. Fails when it stays."""
    made = content("SMS", text="{{ '2026-07-01T09:00:00Z'|time }}")
    assert made.body == "9:00 AM"
    assert sms.segments(made.body).alphabet == "GSM-7"


def test_faults_are_told_for_each_part() -> None:
    """A part that is right does not hide one that is wrong."""
    with pytest.raises(FieldFaults) as raised:
        Body("EMAIL", {"subject": "{{ x|foo }}", "text": "fine", "html": "\n{% if %}"})
    assert {part: str(faults[0]).partition(":")[0] for part, faults in raised.value.faults.items()} == {
        "subject": "line 1",
        "html": "line 2",
    }


BRACKET = "]"


@pytest.mark.parametrize(
    ("text", "alphabet", "units", "count"),
    [
        ("a" * 160, "GSM-7", 160, 1),
        ("a" * 161, "GSM-7", 161, 2),
        ("a" * 158 + "€", "GSM-7", 160, 1),
        ("a" * 159 + "€", "GSM-7", 161, 2),
        ("中" * 70, "UCS-2", 70, 1),
        ("中" * 71, "UCS-2", 71, 2),
        ("😀" * 35, "UCS-2", 70, 1),
        ("😀" * 36, "UCS-2", 72, 2),
        (BRACKET * 84 + "😀", "UCS-2", 86, 2),
        ("", "GSM-7", 0, 0),
        ("a" * 306, "GSM-7", 306, 2),
        ("a" * 307, "GSM-7", 307, 3),
        # The escape and its letter stay together, so the first part holds 152.
        ("a" * 152 + "€" + "a" * 152, "GSM-7", 306, 3),
        ("中" * 66 + "😀" + "中" * 66, "UCS-2", 134, 3),
    ],
)
def test_segments_are_counted_by_alphabet(text: str, alphabet: str, units: int, count: int) -> None:
    """Case H09. Fails when extension letters count double although the text is UCS-2."""
    counted = sms.segments(text)
    assert (counted.alphabet, counted.units, counted.count) == (alphabet, units, count)


def test_a_push_is_measured_in_bytes_on_the_wire() -> None:
    """An emoji is four bytes and a quotation mark two."""
    empty = push.size("", "")
    assert push.size("", "😀") == empty + 4
    assert push.size('"', "") == empty + 2
    assert push.size("", "", {"a": "b"}) == empty + len(',"a":"b"')


def test_variables_are_checked_by_name_and_type() -> None:
    """What is required is there, what is there fits; dates come out as dates; the rest is none of its business."""
    declared = [
        Variable("s", kind=Kind.STRING),
        Variable("n", is_required=False, kind=Kind.NUMBER),
        Variable("d", is_required=False, kind=Kind.DATE),
        Variable("t", is_required=False, kind=Kind.DATETIME),
        Variable("o", is_required=False, kind=Kind.OBJECT),
        Variable("any", is_required=False),
    ]
    fine = check(declared, {"s": 5, "d": "2026-07-01", "t": "2026-07-01T00:00:00+02:00", "extra": 1})
    assert (fine.missing, fine.misfits) == ([], {})
    assert fine.values["s"] == "5"
    assert fine.values["d"].day == 1
    assert fine.values["n"] is None
    assert "extra" not in fine.values
    wrong = check(declared, {"n": "5", "d": "01.07.2026", "t": "2026-07-01T00:00:00", "o": [], "any": [1]})
    assert wrong.missing == ["s"]
    assert set(wrong.misfits) == {"n", "d", "t", "o"}
    assert check(declared, {"s": True}).misfits.keys() == {"s"}
    assert check(declared, {"s": None}).missing == ["s"]
    assert check([Variable("n", kind=Kind.NUMBER)], {"n": True}).misfits.keys() == {"n"}


def version(**bodies: Any) -> Version:
    return Version(
        "demo", "t", 1, "en", variables_of([]), {tag.replace("_", "-"): body for tag, body in bodies.items()}
    )


def test_a_reader_gets_the_nearest_language() -> None:
    """pt-BR → pt → the default; per channel, since not every language has each."""
    found = version(en={"SMS": {"text": "en"}, "PUSH": {"title": "t", "body": "en"}}, pt={"SMS": {"text": "pt"}})
    library = Library()
    for channel, locale, body in (("SMS", "pt-BR", "pt"), ("PUSH", "pt-BR", "en"), ("SMS", None, "en"),
                                  ("SMS", "fr", "en"), ("SMS", "en-GB", "en")):  # fmt: skip
        assert library.render(found, channel, locale, {}, UTC).body == body
    with pytest.raises(ChannelMissingError):
        library.render(found, "EMAIL", "en", {}, UTC)


def test_dates_are_written_as_in_the_readers_region() -> None:
    """The text is in `en`, the reader in Britain: the day comes first."""
    found = version(en={"SMS": {"text": "{{ '2026-07-01'|date('short') }}"}})
    library = Library()
    assert library.render(found, "SMS", "en-GB", {}, UTC).body == "01/07/2026"
    assert library.render(found, "SMS", "en", {}, UTC).body == "7/1/26"
    assert library.render(found, "SMS", "de", {}, UTC).body == "7/1/26"


def test_a_version_is_compiled_once_and_the_memory_is_bounded() -> None:
    """Fails when each rendering compiles, or when what was used keeps its place for ever."""
    library = Library()
    found = version(en={"SMS": {"text": "{% if 1 %}" * 30 + "x" + "{% endif %}" * 30}})
    library.render(found, "SMS", "en", {}, UTC)
    started = time.perf_counter()
    for _ in range(50):
        library.render(found, "SMS", "en", {}, UTC)
    many = time.perf_counter() - started
    started = time.perf_counter()
    Body("SMS", found.bodies["en"]["SMS"])
    assert many < 50 * (time.perf_counter() - started)
    recent: Recent[int, int] = Recent(3)
    for number in (1, 2, 3, 1, 4):
        recent.get(number, lambda number=number: number)  # type: ignore[misc]
    assert [recent.find(number) for number in (1, 2, 3, 4)] == [1, None, 3, 4]
    assert len(recent) == 3
