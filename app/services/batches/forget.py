"""Forgetting what an ended batch no longer needs: whom its list has named, and parts of it that nobody will read.

Uploads that were never started are called off after a while, and forgotten with them.
"""

from sqlalchemy.engine import Engine

from app.db import batch_upkeep, batch_work

_LIMIT = 20_000
_ROUNDS = 50


class ForgetBatches:
    """The use case of upkeep."""

    def __init__(self, engine: Engine, abandoned_seconds: float) -> None:
        self._engine = engine
        self._abandoned_seconds = abandoned_seconds

    def run_once(self) -> int:
        """Delete what is not needed any more, in short transactions; return how many rows."""
        total = 0
        for _ in range(_ROUNDS):
            with self._engine.begin() as connection:
                gone = batch_upkeep.forget(batch_work.cursor_of(connection), _LIMIT, self._abandoned_seconds)
            total += gone
            if not gone:
                break
        return total
