"""Running a template that `source` let through: in a sandbox, under a budget, nothing in reach but its values.

There are two environments, for plain text and for HTML; only the second escapes what is put out. Neither
optimises, because an optimiser runs constant parts while it compiles, outside any budget.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import Any, NoReturn

from babel import Locale
from jinja2 import StrictUndefined, Template, Undefined, pass_context
from jinja2.exceptions import SecurityError, TemplateError, UndefinedError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.rendering.limits import (
    NUMBER_BITS,
    OUTPUT_CHARACTERS,
    STEPS,
    Budget,
    Fault,
    LimitError,
    RenderingError,
    TemplateSyntaxFault,
)
from app.rendering.source import read

RUN = "_run"
"""Where a rendering keeps its `Run`. A template cannot name it: names with an underscore first are refused."""

_LOOP = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_TESTS = frozenset({"defined", "undefined", "none", "string", "number", "mapping", "sequence", "boolean", "true",
                    "false", "odd", "even"})  # fmt: skip
_QUOTED = re.compile(r"'([^' ]*)'")


@dataclass(frozen=True, slots=True)
class Run:
    """One rendering: what it may still cost, and for which language and place it is."""

    budget: Budget
    locale: Locale
    zone: tzinfo


def run_of(context: Context) -> Run:
    """Return the rendering that a filter is part of."""
    run: Run = context.parent[RUN]
    return run


class Environment(ImmutableSandboxedEnvironment):
    """What templates run in. Values are reached by key or index only, whatever a template writes."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    intercepted_unops = frozenset({"+", "-"})

    def __init__(self, filters: Mapping[str, Any], *, is_html: bool) -> None:
        super().__init__(
            autoescape=is_html,
            undefined=StrictUndefined,
            optimized=False,
            cache_size=0,
            finalize=_put_out,
            keep_trailing_newline=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.filters = dict(filters)
        self.tests = {name: test for name, test in self.tests.items() if name in _TESTS}
        self.globals = {"range": _range}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return `obj.attribute`: a key of an object, or the place in a loop."""
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        return self._member(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return `obj[argument]`: a key of an object, or a place in a list."""
        return self._member(obj, argument)

    def _member(self, obj: Any, key: Any) -> Any:
        if isinstance(obj, Undefined):
            raise UndefinedError(f"{obj._undefined_name!r} is undefined")  # noqa: SLF001  no other way to its name
        # A key is a text or a number and nothing that would be hashed for as long as it is deep.
        if isinstance(obj, dict) and isinstance(key, str) and key in obj:
            return obj[key]
        if isinstance(obj, list) and type(key) is int and -len(obj) <= key < len(obj):
            return obj[key]
        # Only a text is shown: to write out a list that holds itself many times over would not end.
        return self.undefined(obj=obj, name=key[:64] if isinstance(key, str) else "an element")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute with numbers, or put two texts together; anything else is refused before it is done."""
        budget = run_of(context).budget
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            budget.spend(len(left) + len(right))
            return left + right
        budget.spend()
        _check_number(operator, left)
        _check_number(operator, right)
        try:
            return self.binop_table[operator](left, right)
        except ArithmeticError as error:
            raise RenderingError(f"{operator}: {type(error).__name__}") from None

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """Return a number with its sign."""
        run_of(context).budget.spend()
        _check_number(operator, arg)
        return self.unop_table[operator](arg)


def _check_number(operator: str, value: Any) -> None:
    if isinstance(value, Undefined):
        raise UndefinedError(f"{value._undefined_name!r} is undefined")  # noqa: SLF001
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RenderingError(f"{operator} is for numbers")
    if isinstance(value, int) and value.bit_length() > NUMBER_BITS:
        raise LimitError(f"a number of more than {NUMBER_BITS} bits")


def _range(*bounds: int) -> range:
    if not all(type(each) is int for each in bounds) or not 1 <= len(bounds) <= 3:  # noqa: PLR2004
        raise RenderingError("range takes one to three whole numbers")
    try:
        numbers = range(*bounds)
    except ValueError:
        raise RenderingError("range cannot step by 0") from None
    # Asked by its ends, because a length that is no machine word is an error of its own.
    if abs(numbers.stop - numbers.start) > STEPS * abs(numbers.step):
        raise LimitError(f"more than {STEPS} steps")
    return numbers


@pass_context
def _put_out(context: Context, value: Any) -> str:
    """Return what `{{ … }}` puts out. Called for every expression, so what is put out is counted here."""
    if isinstance(value, str):
        text = value
    elif value is None:
        text = ""
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int | float | datetime | date):
        text = value.isoformat() if isinstance(value, date) else str(value)
    elif isinstance(value, Undefined):
        text = str(value)
    else:
        raise RenderingError(f"{_kind(value)} cannot be put out; choose what of it, or use join")
    run_of(context).budget.spend(len(text))
    return text


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", range: "a range"}
    return names.get(type(value), "this value")


class Compiled:
    """One template, ready to run."""

    __slots__ = ("_environment", "_template")

    def __init__(self, environment: Environment, source: str, variables: frozenset[str] | None = None) -> None:
        """Compile `source`; raise TemplateSyntaxFault. With `variables`, using any other name is a fault."""
        tree = read(environment, source, variables)
        try:
            code = environment.compile(tree)
        except (SyntaxError, RecursionError, MemoryError, TemplateError) as error:
            raise TemplateSyntaxFault([Fault(0, f"cannot be compiled: {type(error).__name__}")]) from None
        self._environment = environment
        self._template = Template.from_code(environment, code, environment.make_globals(None))

    def render(self, values: Mapping[str, Any], run: Run, limit: int = OUTPUT_CHARACTERS) -> str:
        """Return the text for `values`; raise RenderingError. At most `limit` characters, or LimitError."""
        context = self._template.new_context({**values, RUN: run})
        try:
            return "".join(_bounded(self._template.root_render_func(context), limit))
        except RenderingError:
            raise
        except Exception as error:  # noqa: BLE001  a template may fail in any way, and that is one error
            _fail(error)


def _bounded(pieces: Iterator[str], limit: int) -> Iterator[str]:
    """Yield what is put out, up to the limit: what a loop repeats is counted here as it comes."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise LimitError(f"more than {limit} characters put out")
        yield piece


def _fail(error: Exception) -> NoReturn:
    """Raise what went wrong, in words that repeat no value."""
    if isinstance(error, UndefinedError):
        raise RenderingError(_undefined(error)) from None
    if isinstance(error, SecurityError):
        raise RenderingError("reaches for what templates may not reach") from None
    if isinstance(error, RecursionError | MemoryError):
        raise LimitError(type(error).__name__) from None
    raise RenderingError(f"a value is not of the kind that is needed ({type(error).__name__})") from None


def _undefined(error: UndefinedError) -> str:
    names = _QUOTED.findall(error.message or "")
    return f"{names[-1] if names else 'a value'} is undefined"
