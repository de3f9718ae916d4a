"""What the simulator remembers: the newest calls, and exact counts of all of them.

The outbox is bounded, in rows and in characters, so that a soak cannot fill the memory; the counts and the
set of accepted references are not cut, because a duplicate must be seen however late it comes.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

OUTBOX_ROWS = 200_000
OUTBOX_CHARACTERS = 128 * 1024 * 1024
UUID_LENGTH = 36
TAKEN = frozenset({"accepted", "dropped"})
"""Outcomes after which the provider has the message; `dropped` means that the caller was not told."""


class Call(NamedTuple):
    """One call, as it stands in the outbox. `received_at` is seconds since the epoch."""

    received_at: float
    channel: str
    provider: str
    recipient: str
    reference: str
    subject: str
    body: str
    outcome: str
    collapse_key: str = ""
    ttl_seconds: int | None = None

    def as_json(self) -> dict[str, str | int | None]:
        """The call as the outbox shows it to scripts."""
        row: dict[str, str | int | None] = self._asdict()
        row["received_at"] = iso(self.received_at)
        return row


def iso(seconds: float) -> str:
    """Return an epoch time as RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class SlidingSecond:
    """The most events in any half-open window of one second, exactly, in amortised constant time."""

    __slots__ = ("_times", "most")

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self.most = 0

    def add(self, at: float) -> None:
        """Count one event at a monotonic time that is not before the last one."""
        times = self._times
        times.append(at)
        floor = at - 1.0
        while times[0] <= floor:
            times.popleft()
        self.most = max(self.most, len(times))

    def inside(self, at: float) -> int:
        """Return how many events lie in the second that ends now."""
        times = self._times
        floor = at - 1.0
        while times and times[0] <= floor:
            times.popleft()
        return len(times)


class Counts:
    """The figures of one provider, or of all."""

    def __init__(self) -> None:
        self.calls = 0
        self.accepted = 0
        self.unique = 0
        self.by_outcome: Counter[str] = Counter()
        self.all_calls = SlidingSecond()
        self.accepted_calls = SlidingSecond()

    def add(self, outcome: str, at: float, *, is_new: bool) -> None:
        """Count one call; `is_new` when its reference was never accepted here before."""
        self.calls += 1
        self.by_outcome[outcome] += 1
        self.all_calls.add(at)
        if outcome in TAKEN:
            self.accepted += 1
            self.unique += is_new
            self.accepted_calls.add(at)

    def as_json(self) -> dict[str, object]:
        """The figures as `/stats` shows them."""
        return {
            "calls": self.calls,
            "accepted": self.accepted,
            "unique": self.unique,
            "duplicates": self.accepted - self.unique,
            "by_outcome": dict(self.by_outcome),
            "max_in_any_second": self.all_calls.most,
            "max_accepted_in_any_second": self.accepted_calls.most,
        }


@dataclass(frozen=True, slots=True)
class Filter:
    """Which calls to show; an empty field matches all."""

    recipient: str = ""
    channel: str = ""
    reference: str = ""
    limit: int = 100

    def matches(self, call: Call) -> bool:
        """Whether this call is asked for."""
        return (
            (not self.reference or call.reference == self.reference)
            and (not self.channel or call.channel == self.channel)
            and (not self.recipient or call.recipient == self.recipient)
        )


class Records:
    """The outbox and the counts of one simulator process."""

    def __init__(self, providers: tuple[str, ...]) -> None:
        self._providers = providers
        self._bits = {provider: 1 << place for place, provider in enumerate(providers)}
        self.clear()

    def clear(self) -> None:
        """Forget every call and every count."""
        self._calls: deque[Call] = deque()
        self._characters = 0
        self._all = Counts()
        self._each = {provider: Counts() for provider in self._providers}
        self._taken: dict[bytes | str, int] = {}

    def add(self, call: Call, at: float) -> None:
        """Keep one call that was received at this monotonic time."""
        outcome, provider = call.outcome, call.provider
        is_new = is_new_here = False
        if outcome in TAKEN:
            key, bit = _compact(call.reference), self._bits[provider]
            before = self._taken.get(key, 0)
            # A message without a reference cannot be told from another: it counts as new, never as a duplicate.
            is_new = not before or not call.reference
            is_new_here = not before & bit or not call.reference
            self._taken[key] = before | bit
        self._all.add(outcome, at, is_new=is_new)
        self._each[provider].add(outcome, at, is_new=is_new_here)
        self._calls.append(call)
        self._characters += len(call.body) + len(call.subject)
        while len(self._calls) > OUTBOX_ROWS or self._characters > OUTBOX_CHARACTERS:
            oldest = self._calls.popleft()
            self._characters -= len(oldest.body) + len(oldest.subject)

    def newest(self, wanted: Filter) -> Iterator[Call]:
        """Yield the calls that match, newest first, at most `wanted.limit`."""
        left = wanted.limit
        for call in reversed(self._calls):
            if left <= 0:
                return
            if wanted.matches(call):
                left -= 1
                yield call

    def stats(self) -> dict[str, object]:
        """The figures in all, and of each provider under `providers`."""
        each = {provider: counts.as_json() for provider, counts in self._each.items()}
        return {**self._all.as_json(), "providers": each}


def _compact(reference: str) -> bytes | str:
    """Return a UUID as its 16 bytes, to keep millions of references cheap; anything else as it is."""
    if len(reference) == UUID_LENGTH:
        try:
            return bytes.fromhex(reference.replace("-", ""))
        except ValueError:
            return reference
    return reference
