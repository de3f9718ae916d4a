"""Dead letters: records that no try could understand, kept with their reason and origin until someone looks.

A record is set aside before its offset is committed, so nothing is thrown away; only a value beyond 900 kB is cut,
to leave room for the headers that say where it came from. Replaying puts it back there; that is safe at any time,
since a delivery that is done ignores its message. A database, Redis or broker that is down makes no dead letters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.kafka.producer import Publisher, Record
from app.kafka.reader import TopicReader
from app.queues import DEAD_LETTER_TOPIC

_WITHIN_SECONDS = 10.0
_KEPT_BYTES = 900_000


@dataclass(frozen=True, slots=True)
class Poison:
    """A record of `partition` and `offset` that cannot be understood; `value` is what it carried."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    reason: str
    tries: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter as an operator sees it; `id` names it in a replay."""

    id: str
    reason: str
    tries: int
    topic: str
    partition: int
    offset: int
    value: bytes


class DeadLetterOffice(Protocol):
    """Where the bridge sets poison aside."""

    def set_aside(self, topic: str, records: Sequence[Poison]) -> bool:
        """Keep `records` of `topic`; tell whether all of them are safe."""


class DeadLetters:
    """Sets aside, lists and replays."""

    def __init__(self, publisher: Publisher, reader: TopicReader) -> None:
        self._publisher = publisher
        self._reader = reader

    def set_aside(self, topic: str, records: Sequence[Poison]) -> bool:
        """Write `records` to the dead-letter topic and wait; tell whether every one was acknowledged."""
        letters = [
            Record(
                DEAD_LETTER_TOPIC,
                record.value[:_KEPT_BYTES],
                headers=(
                    ("reason", record.reason.encode()),
                    ("tries", str(record.tries).encode()),
                    ("origin-topic", topic.encode()),
                    ("origin-partition", str(record.partition).encode()),
                    ("origin-offset", str(record.offset).encode()),
                    ("origin-key", record.key or b""),
                ),
            )
            for record in records
        ]
        return not letters or not any(self._publisher.publish(letters, _WITHIN_SECONDS))

    def list(self, limit: int = 100) -> list[DeadLetter]:
        """Return up to `limit` dead letters that were not replayed, oldest first."""
        return list(self._waiting(limit)[0])

    def replay(self, ids: Sequence[str] | None = None) -> int:
        """Put those of `ids`, or all that wait, back to where they came from; return how many.

        After a replay of all they no longer wait; a replay by id leaves the others, and itself, in the list.
        """
        letters, ends = self._waiting(None)
        chosen = [letter for letter in letters if ids is None or letter.id in set(ids)]
        verdicts = self._publisher.publish(
            [Record(letter.topic, letter.value) for letter in chosen], _WITHIN_SECONDS
        )
        if refused := [verdict.reason for verdict in verdicts if verdict is not None]:
            raise ReplayError(f"{len(refused)} of {len(chosen)} were not acknowledged: {refused[0]}")
        if ids is None and ends:
            self._reader.done(ends)
        return len(chosen)

    def _waiting(self, limit: int | None) -> tuple[Sequence[DeadLetter], dict[int, int]]:
        letters: list[DeadLetter] = []
        ends: dict[int, int] = {}
        for record in self._reader.waiting():
            partition, offset = record.partition() or 0, record.offset() or 0
            value = record.value()
            letters.append(
                _letter(
                    partition, offset, dict(record.headers() or []), value if isinstance(value, bytes) else b""
                )
            )
            ends[partition] = offset + 1
            if limit is not None and len(letters) >= limit:
                break
        return letters, ends


class ReplayError(Exception):
    """Not everything was put back; nothing was lost, and a repetition is harmless."""


def _letter(partition: int, offset: int, headers: "dict[str, bytes | str | None]", value: bytes) -> DeadLetter:
    def header(name: str) -> str:
        found = headers.get(name) or b""
        return found.decode(errors="replace") if isinstance(found, bytes) else found

    return DeadLetter(
        id=f"{partition}-{offset}",
        reason=header("reason"),
        tries=int(header("tries") or 0),
        topic=header("origin-topic"),
        partition=int(header("origin-partition") or 0),
        offset=int(header("origin-offset") or 0),
        value=value,
    )
