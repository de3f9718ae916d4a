"""Changing keys: everything that an older key sealed is sealed anew with the one in use.

It runs beside traffic and may be stopped anywhere: what is done is found no more, so the next run goes on where
this one ended. Every new value is opened again before it takes the place of the old one, and takes it only if that
one is still there. What does not open is left as it is and counted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Engine

from app.db import sealed_values
from app.db.sealed_values import SEALED_COLUMNS, Found, SealedColumn
from app.observability.logging import get_logger
from app.sealing import SealBrokenError, UnknownKeyError, Vault, context, key_of

STEP = 500
_log = get_logger(__name__)


@dataclass
class Resealed:
    """What a run did to one column. `lost` counts what no key here opens, by the id of its key."""

    column: str
    resealed: int = 0
    changed_meanwhile: int = 0
    lost: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Census:
    """How many values of a column each key sealed."""

    column: str
    by_key: dict[int, int]


@dataclass(frozen=True)
class Reseal:
    """The use case, for an operator."""

    engine: Engine
    vault: Vault
    columns: Sequence[SealedColumn] = SEALED_COLUMNS
    step: int = STEP

    def census(self) -> list[Census]:
        """Count the values of each column by the key that sealed them."""
        found = []
        for column in self.columns:
            by_key: Counter[int] = Counter()
            for part in self._parts(column):
                with self.engine.begin() as connection:
                    by_key.update(sealed_values.count(connection, column, part))
            found.append(Census(column.name, dict(sorted(by_key.items()))))
        return found

    def run(self, done: Callable[[str, int], None] = lambda _column, _count: None) -> list[Resealed]:
        """Seal anew whatever another key sealed; `done` gets each step's column and how many it looked at."""
        results = []
        for column in self.columns:
            result = Resealed(column.name)
            for part in self._parts(column):
                self._part(column, part, result, done)
            results.append(result)
        return results

    def _parts(self, column: SealedColumn) -> list[str]:
        with self.engine.begin() as connection:
            return sealed_values.parts(connection, column)

    def _part(self, column: SealedColumn, part: str, result: Resealed, done: Callable[[str, int], None]) -> None:
        after: tuple[Any, ...] | None = None
        while True:
            with self.engine.begin() as connection:
                found = sealed_values.step(
                    connection, column, part, key_id=self.vault.sealing_key, after=after, limit=self.step
                )
                made = [(each, new) for each in found if (new := self._anew(column, each, result)) is not None]
                written = sealed_values.replace(connection, column, part, made) if made else 0
            if not found:
                return
            result.resealed += written
            result.changed_meanwhile += len(made) - written
            after = found[-1].key
            done(column.name, len(found))

    def _anew(self, column: SealedColumn, found: Found, result: Resealed) -> bytes | None:
        place = context(column.kind, *found.bound_to)
        try:
            plain = self.vault.open(place, found.sealed)
        except (SealBrokenError, UnknownKeyError):
            result.lost[key_of(found.sealed)] += 1
            return None
        new = self.vault.seal(place, plain)
        if self.vault.open(place, new) != plain:
            raise AssertionError("a value that was just sealed does not open")
        return new
