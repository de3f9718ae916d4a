"""The variables that a template declares, and the values that a request brings for them.

What is required must be there, and what is there must be of its type: found at accept, so that no delivery fails
for it later. An optional variable without a value is `none` to the template. A value that no variable declares is
let be: services send one payload for templates that differ.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a variable holds. Dates and instants are texts in JSON, as RFC 3339 writes them."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    LIST = "list"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared variable. Without a `kind` it may hold anything."""

    name: str
    is_required: bool = True
    kind: Kind | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a payload: the values by name, the required names without one, and what is wrong by name."""

    values: Mapping[str, Any]
    missing: Sequence[str]
    misfits: Mapping[str, str]


def check(variables: Sequence[Variable], payload: Mapping[str, Any]) -> Checked:
    """Return the values for a rendering, with dates and instants read, and what is wrong with them."""
    values: dict[str, Any] = {}
    missing: list[str] = []
    misfits: dict[str, str] = {}
    for variable in variables:
        value = payload.get(variable.name)
        if value is None:
            values[variable.name] = None
            if variable.is_required:
                missing.append(variable.name)
            continue
        values[variable.name] = value
        if variable.kind is not None:
            try:
                values[variable.name] = _READERS[variable.kind](value)
            except (TypeError, ValueError):
                misfits[variable.name] = f"must be {_WORDS[variable.kind]}"
    return Checked(values, missing, misfits)


def _text(value: Any) -> str:
    # A number is as good where a text is wanted: order numbers come as either.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _of(str)(value)  # type: ignore[no-any-return]


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return value


def _date(value: Any) -> date:
    return date.fromisoformat(_of(str)(value))


def _datetime(value: Any) -> datetime:
    moment = datetime.fromisoformat(_of(str)(value))
    if moment.tzinfo is None:
        raise ValueError
    return moment


def _of(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return read


_READERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.STRING: _text,
    Kind.NUMBER: _number,
    Kind.BOOLEAN: _of(bool),
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.LIST: _of(list),
    Kind.OBJECT: _of(dict),
}
_WORDS: Mapping[Kind, str] = {
    Kind.STRING: "a text",
    Kind.NUMBER: "a number",
    Kind.BOOLEAN: "true or false",
    Kind.DATE: "a date such as 2026-07-01",
    Kind.DATETIME: "an instant with an offset, such as 2026-07-01T09:00:00Z",
    Kind.LIST: "a list",
    Kind.OBJECT: "an object",
}
