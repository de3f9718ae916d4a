"""Filters that write as the reader's language does: dates, times, numbers, money, percentages, plurals, lists.

The rules are CLDR's, by Babel. Instants are shown in the reader's zone. A format is one of CLDR's four lengths or
a short pattern of its date letters; widths and digits are bounded, since a pattern can ask for a million zeros.
"""

import re
from collections.abc import Mapping
from copy import copy
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from babel.dates import format_date, format_datetime, format_time
from babel.lists import format_list
from babel.numbers import format_currency as write_currency
from babel.numbers import format_decimal, is_currency

from app.rendering.engine import Run
from app.rendering.filters import counted, text, whole
from app.rendering.limits import RenderingError

_LENGTHS = frozenset({"short", "medium", "long", "full"})
_PATTERN = re.compile(r"[A-Za-z0-9 .,:/'()年月日時分-]{1,40}")
_NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?", re.ASCII)
_RUN_OF_LETTERS = re.compile(r"([A-Za-z])\1{5}")
_DECIMALS = 10
_FORMS = frozenset({"zero", "one", "two", "few", "many", "other"})
_LISTED = 1_000
_MAGNITUDE = Decimal(10) ** 30


def _moment(value: Any) -> date | datetime:
    """Return what a date filter was given: a date, or an instant with its offset."""
    found = value
    if isinstance(value, str):
        try:
            found = date.fromisoformat(value) if len(value) == 10 else datetime.fromisoformat(value)  # noqa: PLR2004
        except ValueError:
            raise RenderingError("a date filter needs a date or an instant as RFC 3339 writes it") from None
    if isinstance(found, datetime):
        if found.tzinfo is None:
            raise RenderingError("an instant needs an offset, such as 2026-07-01T09:00:00Z")
        return found
    if isinstance(found, date):
        return found
    raise RenderingError("a date filter needs a date or an instant as RFC 3339 writes it")


def _instant(value: Any) -> datetime:
    found = _moment(value)
    if not isinstance(found, datetime):
        raise RenderingError("a date has no time; give an instant, such as 2026-07-01T09:00:00Z")
    return found


def _format(value: Any) -> str:
    form = text(value)
    if form not in _LENGTHS and (not _PATTERN.fullmatch(form) or _RUN_OF_LETTERS.search(form)):
        raise RenderingError("a format is short, medium, long, full, or a CLDR pattern of at most 40 characters")
    return form


def _date(run: Run, value: Any, format: Any = "medium") -> str:  # noqa: A002  its name in templates
    found = _moment(value)
    day = found.astimezone(run.zone).date() if isinstance(found, datetime) else found
    return format_date(day, _format(format), run.locale)


def _time(run: Run, value: Any, format: Any = "short") -> str:  # noqa: A002
    return format_time(_instant(value), _format(format), run.zone, run.locale)


def _datetime(run: Run, value: Any, format: Any = "medium") -> str:  # noqa: A002
    return format_datetime(_instant(value), _format(format), run.zone, run.locale)


def _decimal(value: Any) -> Decimal:
    """Return a number exactly as it was written."""
    written = text(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        written = ""
    if not written:
        raise RenderingError("a number is needed")
    number = Decimal(written)
    if not number.is_finite() or abs(number) > _MAGNITUDE:
        raise RenderingError("the number is too large to be written out")
    return number


def _pattern(run: Run, kind: str, value: Any, decimals: Any) -> str:
    """Return a number by a pattern of the language, with a fixed number of decimals when there is one."""
    pattern = (run.locale.percent_formats if kind == "percent" else run.locale.decimal_formats)[None]
    if decimals is not None:
        # The language's own pattern is shared by all, so what is changed is a copy.
        pattern = copy(pattern)
        pattern.frac_prec = (whole(decimals, 0, _DECIMALS),) * 2
    return str(pattern.apply(_decimal(value), run.locale))


def _number(run: Run, value: Any, decimals: Any = None) -> str:
    return _pattern(run, "decimal", value, decimals)


def _percent(run: Run, value: Any, decimals: Any = 0) -> str:
    return _pattern(run, "percent", value, decimals)


def _currency(run: Run, value: Any, code: Any) -> str:
    name = text(code).upper()
    if not is_currency(name):
        raise RenderingError("currency needs a code of ISO 4217, such as EUR")
    return write_currency(_decimal(value), name, locale=run.locale)


def _plural(run: Run, value: Any, **forms: Any) -> str:
    """Return the form that the language uses for this number; `#` in it is the number, written out."""
    if "other" not in forms or not forms.keys() <= _FORMS:
        raise RenderingError("plural takes zero, one, two, few, many and other, and other is needed")
    number = _decimal(value)
    chosen = text(forms.get(run.locale.plural_form(number), forms["other"]))
    if "#" not in chosen:
        return chosen
    written = format_decimal(number, locale=run.locale)
    run.budget.spend(chosen.count("#") * len(written) + len(chosen))
    return chosen.replace("#", written)


def _and_list(run: Run, value: Any) -> str:
    if not isinstance(value, list) or len(value) > _LISTED:
        raise RenderingError(f"and_list needs a list of at most {_LISTED}")
    parts = [text(each) for each in value]
    # The language's pattern is filled in again for each part, so a list costs its length squared.
    run.budget.spend(sum(map(len, parts)) * max(len(parts), 1))
    return format_list(parts, "standard", run.locale)


FILTERS: Mapping[str, Any] = {
    "and_list": counted(_and_list),
    "currency": counted(_currency),
    "date": counted(_date),
    "datetime": counted(_datetime),
    "number": counted(_number),
    "percent": counted(_percent),
    "plural": counted(_plural),
    "time": counted(_time),
}
