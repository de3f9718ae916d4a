"""Migrations as an operator runs them: up to the newest with partitions ahead, or down to a revision.

A migration holds an advisory lock, so that racing migrators take turns, and gives up when a table stays locked for
longer than its lock timeout. Each run is one transaction: giving up leaves nothing half done.
"""

from dataclasses import dataclass

from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from app.db import schema
from app.services.partitions import PartitionsAhead

_LOCK_NOT_AVAILABLE = "55P03"


class MigrationBlockedError(Exception):
    """A table lock could not be had in time; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """Where the database is now. `revision` is `base` when nothing is applied."""

    revision: str
    partitions_made: int


@dataclass(frozen=True)
class Migrate:
    """Runs the migrations on the database of `engine`, whose address is `url`."""

    url: str
    engine: Engine
    partitions: PartitionsAhead

    def up(self) -> Migrated:
        """Apply what is missing, then make the partitions of the next days."""
        self._run(schema.upgrade, "head")
        return Migrated(self._revision(), self.partitions.run_once())

    def down(self, revision: str) -> Migrated:
        """Go back to `revision`; `base` drops every table."""
        self._run(schema.downgrade, revision)
        return Migrated(self._revision(), 0)

    def _run(self, step: schema.Step, revision: str) -> None:
        try:
            step(self.url, revision)
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) != _LOCK_NOT_AVAILABLE:
                raise
            raise MigrationBlockedError(
                "the migration gave up: a table stayed locked by another transaction; nothing was changed"
            ) from error

    def _revision(self) -> str:
        with self.engine.connect() as connection:
            return schema.current(connection) or "base"
