"""One open stream: what waits to be written to it, within bounds.

Everything here runs on the loop of the process, so nothing needs a lock. Frames are put in from the side of Redis
and taken out by the one request that writes them. A client that reads too slowly finds its frames replaced by one
`sync`: it then fetches the inbox once, which says more than the frames that it missed.
"""

import asyncio
import math
import time
from collections import deque
from enum import StrEnum

from app.services.open_stream import Admission
from app.streams.frames import HEARTBEAT, SYNC, comment, retry


class End(StrEnum):
    """Why a stream ended."""

    CLIENT = "client"
    """The client is gone."""
    EXPIRED = "expired"
    """What it was opened with is out of date, revoked or not to be had."""
    RENEW = "renew"
    """It was open for long enough: clients spread over new processes when they connect again."""
    STALLED = "stalled"
    """The client takes nothing any more."""
    STOPPED = "stopped"
    """This process stops."""


class Stream:
    """A bounded buffer with one reader. `limit` is how many frames may wait."""

    __slots__ = (
        "_frames", "_is_beating", "_limit", "_waiter", "admission", "channel", "check_at", "end", "has_synced",
        "opened_at", "renew_at", "touched_at", "writing_since",
    )  # fmt: skip

    def __init__(self, channel: str, admission: Admission, *, limit: int, renew_at: float = math.inf) -> None:
        self.channel = channel
        self.admission = admission
        self.check_at = admission.check_at if admission.credential is not None else math.inf
        self.renew_at = renew_at
        self.end: End | None = None
        self.has_synced = False
        """Whether the client was told to fetch the inbox, at least once."""
        self.opened_at = math.inf
        self.touched_at = math.inf
        """When something was last written, on the loop's clock, as is `opened_at`."""
        self.writing_since: float | None = None
        """Since when a write waits for the client, on the loop's clock; None while none does."""
        self._frames: deque[bytes] = deque()
        self._limit = limit
        self._is_beating = False
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, frame: bytes) -> int:
        """Put a frame in; return how many frames were dropped for it, 0 in the usual case."""
        ends_at = self.admission.ends_at
        if self.end is not None or (ends_at is not None and ends_at <= time.time()):
            return 1
        dropped = 0
        if len(self._frames) >= self._limit:
            dropped = len(self._frames) + 1
            self._frames.clear()
            frame = SYNC
        # Nothing has to follow a sync that was not written yet: the client will see it all.
        if not self._frames or self._frames[0] is not SYNC:
            self._frames.append(frame)
        self._wake()
        return dropped

    def sync(self) -> None:
        """Tell the client to fetch the inbox anew, instead of whatever waits."""
        if self.end is None:
            self.has_synced = True
            self._frames.clear()
            self._frames.append(SYNC)
            self._wake()

    def beat(self) -> None:
        """Let something be written, so that the connection is seen to be alive."""
        self._is_beating = True
        self._wake()

    def finish(self, why: End, retry_seconds: float | None = None) -> None:
        """Let the stream end after what waits; later calls change nothing."""
        if self.end is not None:
            return
        self.end = why
        if retry_seconds is not None:
            self._frames.append(retry(retry_seconds))
        self._frames.append(comment(f"ended: {why}"))
        self._wake()

    async def take(self) -> bytes:
        """Wait for something to write and return it; empty when the stream has ended."""
        while not self._frames and not self._is_beating and self.end is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunk = b"".join(self._frames) or (HEARTBEAT if self._is_beating and self.end is None else b"")
        self._frames.clear()
        self._is_beating = False
        return chunk

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
