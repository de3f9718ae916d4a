"""The filters that a template can use, beside those of `international`; each call is a step of the budget.

A filter takes texts, numbers, booleans, dates, lists and objects, as JSON has them, and checks what it was given.
One that could make more than it takes counts that before it makes it.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast
from urllib.parse import quote

from jinja2 import Undefined, pass_context
from jinja2.exceptions import UndefinedError
from jinja2.runtime import Context
from markupsafe import Markup, escape

from app.rendering.engine import Run, run_of
from app.rendering.limits import RenderingError
from app.rendering.source import COUNTED, JOINED, SCALAR, SLICED, STEP

P = ParamSpec("P")
Filter = Callable[Concatenate[Run, Any, P], Any]

_TEXT_LIMIT = 10_000
_NUMBER_DIGITS = 40
_DECIMALS = 10


def counted(function: Filter[P]) -> Callable[Concatenate[Context, Any, P], Any]:
    """Make a filter of `function`: a step before it runs, and the characters of what it returned after."""

    @pass_context
    @wraps(function)
    def filtered(context: Context, value: Any, *arguments: P.args, **named: P.kwargs) -> Any:
        run = run_of(context)
        run.budget.spend()
        result = function(run, value, *arguments, **named)
        if isinstance(result, str):
            run.budget.spend(len(result))
        return result

    return cast("Callable[Concatenate[Context, Any, P], Any]", filtered)


def text(value: Any) -> str:
    """Return a text, or a number or boolean as text; raise RenderingError for anything else."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise RenderingError("a filter needs a text") if not isinstance(value, Undefined) else _undefined(value)


def whole(value: Any, least: int, most: int) -> int:
    """Return a whole number from `least` to `most`; raise RenderingError for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise RenderingError(f"a filter needs a whole number from {least} to {most}")
    return value


def _undefined(value: Undefined) -> UndefinedError:
    return UndefinedError(f"{value._undefined_name!r} is undefined")  # noqa: SLF001  no other way to its name


def _list(value: Any) -> list[Any]:
    if isinstance(value, Undefined):
        raise _undefined(value)
    if isinstance(value, dict | list | range):
        return list(value)
    raise RenderingError("a list is needed")


def _scalars(run: Run, value: Any) -> list[Any]:
    """Return a list of texts, or one of numbers: what can be compared without looking into it."""
    found = _list(value)
    for each in found:
        run.budget.spend()
        if not isinstance(each, str | int | float):
            raise RenderingError("a list of texts or numbers is needed")
    return found


def _member(each: Any, attribute: str | None) -> Any:
    if attribute is None:
        return each
    if not isinstance(each, dict) or attribute not in each:
        raise RenderingError(f"an object with {text(attribute)[:64]!r} is needed")
    return each[attribute]


@pass_context
def _counted(context: Context, value: Any) -> Any:
    """Let a loop go over `value`, one step an iteration."""
    budget = run_of(context).budget
    for each in value if isinstance(value, range) else _list(value):
        budget.spend()
        yield each


def _joined(run: Run, value: list[Any]) -> str:
    """Put the operands of `~` together."""
    pieces = [each if isinstance(each, str) else text(each) for each in value]
    run.budget.spend(sum(map(len, pieces)))
    if any(isinstance(each, Markup) for each in pieces):
        return Markup("").join(pieces)
    return "".join(pieces)


def _sliced(run: Run, value: Any, start: Any, stop: Any, step: Any) -> Any:
    if isinstance(value, Undefined):
        raise _undefined(value)
    if not isinstance(value, str | list) or any(each is not None and type(each) is not int
                                                for each in (start, stop, step)) or step == 0:  # fmt: skip
        raise RenderingError("a text or a list is cut at whole numbers")
    run.budget.spend(len(value))
    return value[start:stop:step]


def _scalar(_run: Run, value: Any) -> Any:
    if isinstance(value, Undefined):
        raise _undefined(value)
    if isinstance(value, dict | list | range):
        raise RenderingError("lists and objects cannot be compared")
    return value


def _step(_run: Run, value: Any) -> Any:
    if isinstance(value, Undefined):
        raise _undefined(value)
    return value


def _default(_run: Run, value: Any, fallback: Any = "", even_if_empty: Any = False) -> Any:
    is_missing = isinstance(value, Undefined) or value is None or (even_if_empty and not value)
    return fallback if is_missing else value


def _replace(run: Run, value: Any, old: Any, new: Any) -> str:
    whole_text, before, after = text(value), text(old), text(new)
    run.budget.spend(whole_text.count(before) * len(after) + len(whole_text))
    return whole_text.replace(before, after)


def _join(run: Run, value: Any, separator: Any = "", attribute: str | None = None) -> str:
    pieces = [text(_member(each, attribute)) for each in _list(value)]
    between = text(separator)
    run.budget.spend(sum(map(len, pieces)) + len(between) * len(pieces))
    return between.join(pieces)


def _truncate(_run: Run, value: Any, length: Any = 255, end: Any = "…") -> str:
    shown, mark = text(value), text(end)
    limit = whole(length, 1, _TEXT_LIMIT)
    return shown if len(shown) <= limit else shown[: max(limit - len(mark), 0)].rstrip() + mark


def _capitalize(_run: Run, value: Any) -> str:
    return text(value).capitalize()


def _lower(_run: Run, value: Any) -> str:
    return text(value).lower()


def _upper(_run: Run, value: Any) -> str:
    return text(value).upper()


def _trim(_run: Run, value: Any) -> str:
    return text(value).strip()


def _title(_run: Run, value: Any) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text(value).split(" "))


def _int(_run: Run, value: Any, fallback: Any = 0) -> Any:
    try:
        return int(value if isinstance(value, int | float) else text(value)[:_NUMBER_DIGITS])
    except (ValueError, OverflowError):
        return fallback


def _float(_run: Run, value: Any, fallback: Any = 0.0) -> Any:
    try:
        return float(value if isinstance(value, int | float) else text(value)[:_NUMBER_DIGITS])
    except (ValueError, OverflowError):
        return fallback


def _round(_run: Run, value: Any, decimals: Any = 0) -> Any:
    if not isinstance(value, int | float):
        raise RenderingError("round is for numbers")
    return round(value, whole(decimals, 0, _DECIMALS))


def _abs(_run: Run, value: Any) -> Any:
    if not isinstance(value, int | float):
        raise RenderingError("abs is for numbers")
    return abs(value)


def _length(_run: Run, value: Any) -> int:
    return len(value) if isinstance(value, str) else len(_list(value))


def _first(_run: Run, value: Any) -> Any:
    found = value if isinstance(value, str) else _list(value)
    return found[0] if found else None


def _last(_run: Run, value: Any) -> Any:
    found = value if isinstance(value, str) else _list(value)
    return found[-1] if found else None


def _sort(run: Run, value: Any, reverse: Any = False, attribute: str | None = None) -> list[Any]:
    found = _list(value)
    keys = _scalars(run, [_member(each, attribute) for each in found])
    order = sorted(range(len(found)), key=keys.__getitem__, reverse=bool(reverse))
    return [found[place] for place in order]


def _sum(run: Run, value: Any, attribute: str | None = None) -> Any:
    numbers = _scalars(run, [_member(each, attribute) for each in _list(value)])
    if any(isinstance(each, str) for each in numbers):
        raise RenderingError("sum is for numbers")
    return sum(numbers)


def _map(run: Run, value: Any, attribute: str) -> list[Any]:
    found = _list(value)
    run.budget.spend(len(found))
    return [_member(each, attribute) for each in found]


def _items(run: Run, value: Any) -> list[list[Any]]:
    if not isinstance(value, dict):
        raise RenderingError("items is for objects")
    run.budget.spend(len(value))
    return [list(pair) for pair in value.items()]


def _urlencode(_run: Run, value: Any) -> str:
    return quote(text(value), safe="")


def _escape(_run: Run, value: Any) -> str:
    return escape(text(value))


def _nl2br(_run: Run, value: Any) -> str:
    return Markup(escape(text(value)).replace("\n", Markup("<br>\n")))  # noqa: S704  escaped in this line


_INTERNAL: Mapping[str, Any] = {
    COUNTED: _counted,
    JOINED: counted(_joined),
    SLICED: counted(_sliced),
    SCALAR: counted(_scalar),
    STEP: counted(_step),
}
TEXT: Mapping[str, Any] = {
    **_INTERNAL,
    "abs": counted(_abs),
    "capitalize": counted(_capitalize),
    "count": counted(_length),
    "default": counted(_default),
    "first": counted(_first),
    "float": counted(_float),
    "int": counted(_int),
    "items": counted(_items),
    "join": counted(_join),
    "last": counted(_last),
    "length": counted(_length),
    "lower": counted(_lower),
    "map": counted(_map),
    "replace": counted(_replace),
    "round": counted(_round),
    "sort": counted(_sort),
    "sum": counted(_sum),
    "title": counted(_title),
    "trim": counted(_trim),
    "truncate": counted(_truncate),
    "upper": counted(_upper),
    "urlencode": counted(_urlencode),
}
HTML: Mapping[str, Any] = {**TEXT, "e": counted(_escape), "escape": counted(_escape), "nl2br": counted(_nl2br)}
