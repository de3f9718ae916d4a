"""Namespaces: what is cached, for how long, and as which bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Namespace(Generic[Value]):
    """One kind of value. `decode` undoes `encode`; what it raises ValueError for is read anew.

    The bytes lie in a server that others may look into: a namespace of personal values encodes sealed ones.
    """

    name: str
    lifetime_seconds: int
    encode: Callable[[Value], bytes]
    decode: Callable[[bytes], Value]


def of_json(name: str, lifetime_seconds: int) -> Namespace[Any]:
    """Return a namespace of values that JSON can say."""
    return Namespace(name, lifetime_seconds, orjson.dumps, orjson.loads)


UNREAD: Namespace[int] = Namespace("unread", 3600, lambda count: b"%d" % count, int)
"""Unread counts, by (tenant, user)."""

PREFERENCES: Namespace[Any] = of_json("preferences", 300)
"""What a user wishes, by (tenant, user)."""

USERS: Namespace[bytes] = Namespace("users", 3600, bytes, bytes)
"""Users as they are stored, addresses sealed, by (tenant, user)."""

TEMPLATES: Namespace[Any] = of_json("templates", 86_400)
"""Versions of templates, which never change, and which one is current, by (tenant, name …)."""
