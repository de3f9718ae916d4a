"""The alarm beside the claim: one mark in Redis for each delivery that is being sent, ordered by lease token.

The claim in PostgreSQL decides who sends. A database that lost a committed claim (a crash without its disk, a
fail-over to a stale replica) hands the same delivery out again under the same token, or a lower one; the mark of
the first claim then refuses it. A later claim carries a higher token and takes the mark over, so a killed worker
blocks nobody. A refusal is worth an alert, and the refused claim is given back.
"""

from collections.abc import Sequence
from secrets import token_hex

from redis import Redis

from app.limits.script import load


class Guard:
    """Marks deliveries as being sent. Safe for threads; raises redis.RedisError."""

    def __init__(self, client: Redis) -> None:
        self._acquire = load(client, "guard")
        self._release = load(client, "guard_release")

    def acquire(self, claims: Sequence[tuple[str, int]], owner: str, seconds: float) -> list[bool]:
        """Mark each (delivery id, lease token) for `seconds`; False where an equal or higher token holds the mark.

        One round trip for the batch. `owner` names the worker process.
        """
        if not claims:
            return []
        nonce = token_hex(4)
        args: list[str | int] = [max(1, round(seconds * 1000))]
        for _, token in claims:
            args += [token, f"{token}:{owner}:{nonce}"]
        return [bool(int(one)) for one in self._acquire(keys=_keys(claims), args=args)]

    def release(self, claims: Sequence[tuple[str, int]], owner: str) -> None:
        """Remove the marks that these claims of `owner` still hold; one that was taken over stays."""
        if claims:
            self._release(keys=_keys(claims), args=[f"{token}:{owner}:" for _, token in claims])


def _keys(claims: Sequence[tuple[str, int]]) -> list[str]:
    return [f"arauto:{{guard}}:{delivery_id}" for delivery_id, _ in claims]
