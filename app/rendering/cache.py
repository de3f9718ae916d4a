"""A bounded memory of what is costly to make and never changes. Threads share it."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Keeps the `limit` values that were used last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Key) -> Value | None:
        """Return what is kept under `key`, or None."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value; the one that was not used for longest makes room."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return what is kept, or what `make` returns. Two threads may both make it; the result is the same."""
        found = self.find(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found
