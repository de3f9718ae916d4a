"""The template engine: what it offers, and that nothing hostile gets past its limits."""

import time
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.rendering import filters, international, locales
from app.rendering.engine import Compiled, Environment, Run
from app.rendering.limits import Budget, LimitError, RenderingError, TemplateSyntaxFault

PLAIN = Environment({**filters.TEXT, **international.FILTERS}, is_html=False)
HTML = Environment({**filters.HTML, **international.FILTERS}, is_html=True)
WITHIN_SECONDS = 3.0
"""Many times the engine's own limit: machines of tests are slow, and without the limit it would be for ever."""


def render(source: str, *, html: bool = False, locale: str = "en", zone: str = "UTC", **values: Any) -> str:
    compiled = Compiled(HTML if html else PLAIN, source, frozenset(values))
    return compiled.render(values, Run(Budget(), locales.parsed(locale), ZoneInfo(zone)))


@pytest.mark.parametrize(
    ("source", "values", "text"),
    [
        ("Hi {{ name }}!", {"name": "Ana"}, "Hi Ana!"),
        ("{% if n > 1 %}many{% elif n == 1 %}one{% else %}none{% endif %}", {"n": 1}, "one"),
        ("{% for i in x %}{{ loop.index }}{{ i.a }}{% if not loop.last %},{% endif %}{% endfor %}",
         {"x": [{"a": "p"}, {"a": "q"}]}, "1p,2q"),
        ("{% for i in x if i > 1 %}{{ i }}{% else %}-{% endfor %}", {"x": [1]}, "-"),
        ("{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", {"d": {"a": 1, "b": None}}, "a=1;b=;"),
        ("{% set a = x ~ '-' ~ x %}{{ a[1:] }}", {"x": "ab"}, "b-ab"),
        ("{{ x[0] }}{{ x[-1] }}{{ x[:2]|join('+') }}", {"x": [1, 2, 3]}, "131+2"),
        ("{{ d['a b'] }}{{ d.c.e }}", {"d": {"a b": 1, "c": {"e": 2}}}, "12"),
        ("{{ {'y': 'yes'}[x] }}", {"x": "y"}, "yes"),
        ("{{ 1 < x <= 3 and x != 2 }}{{ 'a' in 'abc' }}{{ x in [3] }}", {"x": 3}, "truetruetrue"),
        ("{{ (x * 3 - 1) / 2 + 7 // 2 % 2 }}", {"x": 3}, "5.0"),
        ("{{ x|default('you') }}{{ ''|default('a', true) }}", {"x": None}, "youa"),
        ("{{ x|upper }}{{ x|capitalize }}{{ x|title }}{{ x|length }}", {"x": "ab cd"}, "AB CDAb cdAb Cd5"),
        ("{{ x|truncate(4) }}{{ x|replace('b', 'XY') }}", {"x": "abcdef"}, "abc…aXYcdef"),
        ("{{ x|sort|join(' ') }}{{ x|sum }}{{ x|first }}{{ x|last }}", {"x": [3, 1, 2]}, "1 2 3632"),
        ("{{ x|map('a')|join }}{{ x|sort(true, 'a')|map('a')|join }}", {"x": [{"a": 1}, {"a": 2}]}, "1221"),
        ("{{ '4'|int + 1 }}{{ 'x'|int }}{{ 2.345|round(1) }}{{ -2|abs }}", {}, "502.32"),
        ("{{ x|urlencode }}", {"x": "a b&ü"}, "a%20b%26%C3%BC"),
        ("{{ x is none }}{{ 'a' is string }}{{ [] is sequence }}", {"x": None}, "truetruetrue"),
        ("{# gone #}{% raw %}{{ x }}{% endraw %}", {"x": 1}, "{{ x }}"),
        ("{% for i in range(2, 8, 3) %}{{ i }}{% endfor %}", {}, "25"),
        ("{{ 'b' if x }}", {"x": False}, ""),
    ],
)  # fmt: skip
def test_what_a_template_can_do(source: str, values: dict[str, Any], text: str) -> None:
    """Conditions, loops, sums and filters, over the values that were given."""
    assert render(source, **values) == text


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("a\n\n{{ x|foo }}", 3, "unknown filter 'foo'"),
        ("{{ x is prime }}", 1, "unknown test 'prime'"),
        ("a\n{{ y }}", 2, "the variable 'y' is not declared"),
        ("a\n{% if %}", 2, "expected an expression"),
        ("{% if x %}", 1, "unexpected end of template"),
        ("{{ x", 1, "unexpected"),
        ("{% trans %}{% endtrans %}", 1, "unknown tag 'trans'"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 1, "macros are not offered"),
        ("{% include 'a' %}", 1, "include is not offered"),
        ("{% import 'a' as a %}", 1, "import is not offered"),
        ("{% from 'a' import b %}", 1, "import is not offered"),
        ("{% extends 'a' %}", 1, "inheritance is not offered"),
        ("{% block a %}{% endblock %}", 1, "blocks are not offered"),
        ("{% call x() %}{% endcall %}", 1, "call blocks are not offered"),
        ("{% set a %}x{% endset %}", 1, "set blocks are not offered"),
        ("{% filter upper %}x{% endfilter %}", 1, "filter blocks are not offered"),
        ("{% for i in x recursive %}{{ loop(i) }}{% endfor %}", 1, "recursive loops are not offered"),
        ("{{ 2 ** 9 }}", 1, "** is not offered"),
        ("{{ x.upper() }}", 1, "nothing can be called"),
        ("{{ loop.cycle(1) }}", 1, "nothing can be called"),
        ("{{ ''.__class__ }}", 1, "the attribute '__class__' is not offered"),
        ("{{ x['__class__'] }}", 1, "the attribute '__class__' is not offered"),
        ("{{ self }}", 1, "the name 'self' is not offered"),
        ("{{ _run }}", 1, "the name '_run' is not offered"),
        ("{{ x|_counted }}", 1, "unknown filter '_counted'"),
        ("{% set range = x %}", 1, "the name 'range' is taken"),
        ("{{ x|join(*x) }}", 1, "arguments cannot be unpacked"),
        ("{{ {x: 1} }}", 1, "keys of a {…} must be constants"),
        ("{{ (x, x) }}", 1, "tuples are not offered"),
        ("{{ x|escape }}", 1, "unknown filter 'escape'"),
        ("{{ '%d'|format(1) }}", 1, "unknown filter 'format'"),
        ("{{ x|attr('a') }}", 1, "unknown filter 'attr'"),
        ("{{ lipsum }}", 1, "the variable 'lipsum' is not declared"),
        ("{{ namespace() }}", 1, "nothing can be called"),
        ("{% autoescape true %}{% endautoescape %}", 0, "autoescape cannot be changed"),
        ("a" * 70_000, 0, "longer than"),
        ("{{ x }}" * 5_000, 0, "more than 4000 parts"),
        ("{{ " + "(" * 20_000, 0, "nested deeper"),
        ("{{ " + "x + " * 5_000 + "x }}", 1, "nested deeper"),
        ("{% if x %}" * 300 + "{% endif %}" * 300, 0, "nested deeper"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_named_with_its_line(source: str, line: int, message: str) -> None:
    """Fails when a kind of node, name, filter or call gets on the list of what is let through."""
    with pytest.raises(TemplateSyntaxFault) as raised:
        render(source, x=["a"])
    first = raised.value.faults[0]
    assert message in "; ".join(each.message for each in raised.value.faults)
    assert first.line == line


def test_every_fault_is_told_at_once() -> None:
    """Whoever writes a template corrects it in one go."""
    with pytest.raises(TemplateSyntaxFault) as raised:
        render("{{ a|foo }}\n{{ b|bar }}\n{{ 'x'.y() }}")
    assert [each.line for each in raised.value.faults] == [1, 2, 3]


DOUBLED = "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}"
ADDED = "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a + a %}" * 60 + "{{ a }}"
SQUARED = "{% set a = 9 %}" + "{% set a = a * a %}" * 60 + "{{ a }}"
NESTED = "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 40


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% for i in range(-99999999999999999999999999, 9) %}x{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in x %}{% endfor %}{% endfor %}{% endfor %}"
        .replace(" x ", " range(9999) "),
        "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}",
        "{% for i in range(15000) %}" + "x" * 60_000 + "{% endfor %}",
        "{% for i in range(15000) %}" + "{{ big }}" * 500 + "{% endfor %}",
        "{% for i in range(15000) %}" + "{% if big in many %}{% endif %}" * 500 + "{% endfor %}",
        "{% for i in range(15000) %}" + "{% set a = big|replace('a', 'b') %}" * 500 + "{% endfor %}",
        "{% for i in range(15000) %}" + "{% set a = many|sort %}" * 500 + "{% endfor %}",
        "{{ 'a' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ big|replace('', big) }}",
        "{{ big|replace('a', big) }}",
        "{{ many|join(big) }}",
        "{{ big|and_list }}",
        "{{ many|and_list }}",
        "{{ 5|plural(other=many|join('#')) }}" * 20,
        DOUBLED,
        ADDED,
        SQUARED,
        NESTED + "{{ a == b }}",
        NESTED + "{{ a < b }}",
        NESTED + "{{ a }}",
        NESTED + "{{ a|join }}",
        NESTED + "{{ a|sort }}",
        NESTED + "{{ {'x': 1}[a] }}",
        "{{ 1|number(1000000000) }}",
        "{{ 1|number(decimals=1000000000) }}",
        "{{ '2026-07-01'|date('yyyyyyyyyyyyyyyy') }}",
        "{{ big|date(big) }}",
        "{{ ('9' ~ big)|number }}",
        "{{ big|truncate(1000000000) }}",
        "{{ 1e308 * 1e308 * 9 }}{{ (1e308 * 10)|number }}",
        "{{ 1 / 0 }}",
    ],
    ids=lambda source: source[:50],
)  # fmt: skip
def test_a_hostile_template_is_ended(source: str) -> None:
    """Each would take hours or gigabytes. Fails, by never ending, without the step that counts it."""
    started = time.perf_counter()
    with pytest.raises(RenderingError):
        render(source, big="a" * 20_000, many=["a" * 10] * 3_000)
    assert time.perf_counter() - started < WITHIN_SECONDS


def test_time_is_a_limit_of_its_own() -> None:
    """A rendering whose steps are slow ends by the clock. Fails when the clock is not looked at."""
    ticks = iter(range(1_000))
    run = Run(Budget(seconds=5, clock=lambda: float(next(ticks))), locales.parsed("en"), ZoneInfo("UTC"))
    with pytest.raises(LimitError, match="longer than"):
        Compiled(PLAIN, "{% for i in range(100) %}x{% endfor %}").render({}, run)


@pytest.mark.parametrize("name", ["__class__", "__init__", "_secret", "keys", "items", "pop", "mro", "format"])
def test_only_keys_of_the_data_can_be_reached(name: str) -> None:
    """By a name that is computed, too. Fails when a look-up falls back to Python's attributes."""
    for value in ({"a": 1}, ["a"], "a", 1, None):
        with pytest.raises(RenderingError, match="undefined"):
            render("{{ x[n] }}", x=value, n=name)
    assert render("{{ x[n] }}", x={name: 7}, n=name) == "7"


def test_what_goes_wrong_repeats_no_value() -> None:
    """An error is logged and shown: it names the variable and never what is in it."""
    for source in (
        "{{ x.y }}",
        "{{ x + 1 }}",
        "{{ x|date }}",
        "{{ x|number }}",
        "{{ x|map('y') }}",
        "{{ x < 1 }}",
    ):
        with pytest.raises(RenderingError) as raised:
            render(source, x="secret")
        assert "secret" not in str(raised.value)


def test_values_are_escaped_in_html_and_only_there() -> None:
    """Fails without autoescape, or when a filter's result counts as safe."""
    evil = "<script>'&\""
    escaped = "&lt;script&gt;&#39;&amp;&#34;"
    for source in ("{{ x }}", "{{ x ~ '' }}", "{{ x|trim }}", "{{ '' + x }}", "{{ [x]|join }}", "{{ x[0:] }}",
                   "{{ x|default('') }}", "{{ [x]|first }}", "{{ x|escape }}"):  # fmt: skip
        assert render(source, html=True, x=evil) == escaped
    assert render("{{ x|title }}", html=True, x="<b>") == "&lt;b&gt;"
    assert render("{{ x|nl2br }}", html=True, x="<b>\nc") == "&lt;b&gt;<br>\nc"
    assert render("{{ x }}", x=evil) == evil


@pytest.mark.parametrize(
    ("source", "locale", "text"),
    [
        ("{{ d|date }}", "en", "Jul 2, 2026"),
        ("{{ d|date('short') }}", "de", "02.07.26"),
        ("{{ d|date('full') }}", "pt-BR", "quinta-feira, 2 de julho de 2026"),
        ("{{ d|date('yyyy-MM-dd') }}", "en", "2026-07-02"),
        ("{{ d|time }}", "de", "00:30"),
        ("{{ d|datetime('short') }}", "de", "02.07.26, 00:30"),
        ("{{ 1234.5|number }}", "de", "1.234,5"),
        ("{{ 1234.5|number(2) }}", "fr", "1\u202f234,50"),
        ("{{ '1234.50'|number }}", "en", "1,234.5"),
        ("{{ 0.125|percent(1) }}", "de", "12,5\xa0%"),
        ("{{ 1234.5|currency('EUR') }}", "de", "1.234,50\xa0€"),
        ("{{ 1234.5|currency('jpy') }}", "en", "¥1,234"),
        ("{{ 1|plural(one='# file', other='# files') }}", "en", "1 file"),
        ("{{ 1200|plural(one='# file', other='# files') }}", "en", "1,200 files"),
        ("{{ 5|plural(one='plik', few='pliki', many='# plików', other='pliku') }}", "pl", "5 plików"),
        ("{{ 2|plural(one='plik', few='# pliki', many='plików', other='pliku') }}", "pl", "2 pliki"),
        ("{{ 0|plural(one='fichier', other='fichiers') }}", "fr", "fichier"),
        ("{{ ['a', 'b', 'c']|and_list }}", "en", "a, b, and c"),
        ("{{ ['a', 'b']|and_list }}", "pt", "a e b"),
    ],
)
def test_languages_write_in_their_own_way(source: str, locale: str, text: str) -> None:
    """CLDR's rules, and the reader's own zone: the instant is on the next day there."""
    assert render(source, locale=locale, zone="Europe/Berlin", d="2026-07-01T22:30:00Z") == text


@pytest.mark.parametrize(
    "source",
    ["{{ 'x'|date }}", "{{ '2026-07-01T00:00:00'|date }}", "{{ '2026-07-01'|time }}", "{{ 5|date }}",
     "{{ 'x'|number }}", "{{ true|number }}", "{{ 5|currency('XYZ') }}", "{{ 5|plural(one='a') }}",
     "{{ 5|plural(other='a', seven='b') }}", "{{ 'x'|and_list }}", "{{ none|number }}"],
)  # fmt: skip
def test_a_filter_refuses_what_it_cannot_write(source: str) -> None:
    """A wrong value is an error of the rendering and never a strange text."""
    with pytest.raises(RenderingError):
        render(source)


@pytest.mark.parametrize(
    ("tag", "places"),
    [
        ("pt-BR", ("pt-BR", "pt")),
        ("pt_br", ("pt-BR", "pt")),
        ("pt-AO", ("pt-AO", "pt-PT", "pt")),
        ("es-MX", ("es-MX", "es-419", "es")),
        ("zh-TW", ("zh-TW", "zh-Hant-TW", "zh-Hant")),
        ("zh-CN", ("zh-CN", "zh-Hans-CN", "zh-Hans", "zh")),
        ("de", ("de",)),
        ("xx-YY", ()),
        ("", ()),
        ("../../etc", ()),
        ("a" * 100, ()),
    ],
)
def test_a_text_is_looked_for_in_the_parents_of_a_language(tag: str, places: tuple[str, ...]) -> None:
    """Those of CLDR, and never in another script."""
    assert locales.chain(tag) == places
