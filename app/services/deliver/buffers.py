"""Hand-overs between the threads of a lane: each blocks on a condition, none polls.

`Parking` takes ids from Celery tasks, `Buffer` passes work from stage to stage, `Window` bounds the calls in
flight. All of them are closed at shutdown, which wakes whoever waits; what is left is drained and handed back.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Condition
from time import monotonic
from typing import Generic, TypeVar

from app.services.deliver.work import Parked

T = TypeVar("T")


class Parking:
    """A bounded queue of ids in which each id stands once, first in, first out; some stand until they are due.

    A message about an id that stands already is not parked, but it may widen what stands: a countdown that stands
    there may be out of date, and would be dropped at the load with the newer message that came to it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queue: deque[Parked] = deque()
        self._later: list[tuple[float, int, Parked]] = []
        self._draws = 0
        self._ids: dict[str, Parked] = {}
        self._changed = Condition()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, arrivals: Iterable[Parked]) -> list[Parked]:
        """Park what is not parked yet; return what found no room or came after the close."""
        refused: list[Parked] = []
        with self._changed:
            for parked in arrivals:
                if self._stands(parked):
                    continue
                if self._is_closed or len(self._ids) >= self._capacity:
                    refused.append(parked)
                    continue
                self._ids[parked.id] = parked
                self._queue.append(parked)
            self._changed.notify_all()
        return refused

    def put_back(self, taken: Sequence[Parked]) -> None:
        """Put what was taken to the front again, also when closed or full: it is then drained."""
        with self._changed:
            for parked in reversed(taken):
                if not self._stands(parked):
                    self._ids[parked.id] = parked
                    self._queue.appendleft(parked)
            self._changed.notify_all()

    def put_until(self, parked: Parked, due_at: float) -> None:
        """Park an id that is due at the monotonic instant `due_at`."""
        with self._changed:
            if self._stands(parked):
                return
            self._ids[parked.id] = parked
            self._draws += 1
            heapq.heappush(self._later, (due_at, self._draws, parked))
            self._changed.notify_all()

    def take(self, limit: int, wait_seconds: float) -> list[Parked]:
        """Wait for ids and take up to `limit` of them; a suspect is taken alone. Empty after `wait_seconds`."""
        deadline = monotonic() + wait_seconds
        with self._changed:
            while True:
                now = monotonic()
                while self._later and self._later[0][0] <= now:
                    self._queue.append(heapq.heappop(self._later)[2])
                if self._queue or self._is_closed or now >= deadline:
                    break
                until = min(deadline, self._later[0][0]) if self._later else deadline
                self._changed.wait(until - now)
            return [] if self._is_closed else self._pop(limit)

    def take_older(self, limit: int, parked_before: float) -> list[Parked]:
        """Take up to `limit` of the first ids that were parked before the monotonic instant `parked_before`."""
        old: list[Parked] = []
        with self._changed:
            while self._queue and len(old) < limit and self._queue[0].parked_at < parked_before:
                old.append(self._queue.popleft())
                del self._ids[old[-1].id]
        return old

    def close(self) -> None:
        """Take nothing more in, and wake whoever waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def drain(self) -> list[Parked]:
        """Take everything, also what is not due yet."""
        with self._changed:
            rest = [*self._queue, *(entry[2] for entry in self._later)]
            self._queue.clear()
            self._later.clear()
            self._ids.clear()
        return rest

    def _stands(self, parked: Parked) -> bool:
        """Tell whether the id is parked already; what stands is then for the newer of both attempts, or any."""
        standing = self._ids.get(parked.id)
        if standing is None:
            return False
        if standing.attempt is not None:
            standing.attempt = None if parked.attempt is None else max(standing.attempt, parked.attempt)
        return True

    def _pop(self, limit: int) -> list[Parked]:
        taken: list[Parked] = []
        while self._queue and len(taken) < limit:
            if self._queue[0].is_suspect and taken:
                break
            taken.append(self._queue.popleft())
            if taken[-1].is_suspect:
                break
        for parked in taken:
            del self._ids[parked.id]
        return taken


class Buffer(Generic[T]):
    """A queue between two threads of a lane."""

    def __init__(self) -> None:
        self._queue: deque[T] = deque()
        self._changed = Condition()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, items: Sequence[T]) -> None:
        """Append `items`."""
        with self._changed:
            self._queue.extend(items)
            self._changed.notify_all()

    def put_back(self, items: Sequence[T]) -> None:
        """Put items that were taken to the front again."""
        with self._changed:
            self._queue.extendleft(reversed(items))
            self._changed.notify_all()

    def peek(self) -> T | None:
        """Return the first item without taking it."""
        try:
            return self._queue[0]
        except IndexError:
            return None

    def wait_filled(self, wait_seconds: float) -> bool:
        """Wait until there is something to take; tell whether there is."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed, wait_seconds)
            return bool(self._queue)

    def wait_below(self, size: int, wait_seconds: float) -> bool:
        """Wait until fewer than `size` items wait; tell whether so few do."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) < size or self._is_closed, wait_seconds)
            return len(self._queue) < size

    def take(self, limit: int) -> list[T]:
        """Take up to `limit` of the first items, none if there are none."""
        with self._changed:
            taken = [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
            self._changed.notify_all()
        return taken

    def close(self) -> None:
        """Wake whoever waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Window:
    """How many calls of a lane may be under way at once."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._size = size
        self._changed = Condition()
        self._is_closed = False

    @property
    def in_flight(self) -> int:
        """Calls that are claimed or about to be."""
        return self._size - self._free

    def wait_room(self, wait_seconds: float) -> int:
        """Wait for room; return how much there is."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0 or self._is_closed, wait_seconds)
            return self._free

    def take(self, count: int) -> None:
        """Occupy `count` places that `wait_room` has shown; only one thread takes."""
        with self._changed:
            self._free -= count

    def release(self, count: int) -> None:
        """Free `count` places."""
        with self._changed:
            self._free += count
            self._changed.notify_all()

    def wait_empty(self, wait_seconds: float) -> bool:
        """Wait until no call is under way; tell whether that came."""
        with self._changed:
            return self._changed.wait_for(lambda: self._free >= self._size, wait_seconds)

    def close(self) -> None:
        """Wake whoever waits for room."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
