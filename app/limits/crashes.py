"""How often a piece of work was started and not finished, counted outside the worker that it may have killed.

A message that takes its worker down is delivered again and takes the next one down. The count says that it is a
suspect: its chunk is then taken apart, and an id that has done it too often is set aside.
"""

from collections.abc import Sequence

from redis import Redis

from app.limits.script import load

KEPT_SECONDS = 3600


class CrashCounter:
    """Counts starts for an hour after the last one. Safe for threads; raises redis.RedisError."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._script = load(client, "crashes")

    def started(self, ids: Sequence[str]) -> list[int]:
        """Count a start of each id (of a chunk or a delivery); return the starts so far, 1 for the first."""
        if not ids:
            return []
        return [int(count) for count in self._script(keys=_keys(ids), args=[KEPT_SECONDS * 1000])]

    def finished(self, ids: Sequence[str]) -> None:
        """Forget the starts of work that came to an end, good or bad, with its worker alive."""
        if ids:
            self._client.unlink(*_keys(ids))


def _keys(ids: Sequence[str]) -> list[str]:
    return [f"arauto:{{crash}}:{identifier}" for identifier in ids]
