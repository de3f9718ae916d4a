"""The rounds that are made over all open streams: heartbeats, second looks at credentials, and ends.

One task looks at every stream once in a while, which costs less than a timer for each. A credential that several
streams were opened with is looked at once for all of them, in a thread, since that may wait for the database.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable

from app.db.requests import DatabaseBusyError, DatabaseDownError
from app.observability.logging import get_logger
from app.services.open_stream import Credential
from app.services.refusal import Unauthenticated, Unavailable
from app.streams.hub import Hub
from app.streams.stream import End, Stream

LookAgain = Callable[[Credential], Awaitable[float]]
"""Returns when to look once more, in seconds since the epoch; raises Unauthenticated when it has ended."""

_EVERY_SECONDS = 1.0
_AGAIN_SECONDS = 5.0
_SYNC_SECONDS = 2.0
_log = get_logger(__name__)


class Rounds:
    """Looks after the streams of a hub."""

    def __init__(
        self,
        hub: Hub,
        look_again: LookAgain,
        cut_off: Callable[[Stream], None],
        *,
        heartbeat_seconds: float,
        stalled_seconds: float,
    ) -> None:
        self._hub = hub
        self._look_again = look_again
        self._cut_off = cut_off
        self._heartbeat_seconds = heartbeat_seconds
        self._stalled_seconds = stalled_seconds
        self._every_seconds = min(_EVERY_SECONDS, heartbeat_seconds / 2)
        self._looks: dict[Credential, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Make rounds until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._every_seconds)
                self.look()
        finally:
            for task in self._looks.values():
                task.cancel()

    def look(self) -> None:
        """Look at every stream once."""
        now, moment = time.time(), asyncio.get_running_loop().time()
        due: dict[Credential, list[Stream]] = defaultdict(list)
        for stream in self._hub.streams():
            self._end_or_beat(stream, now, moment)
            if stream.end is None and stream.check_at <= now and stream.admission.credential is not None:
                due[stream.admission.credential].append(stream)
        for credential, streams in due.items():
            if credential not in self._looks:
                task = asyncio.get_running_loop().create_task(self._check(credential, streams))
                self._looks[credential] = task

    def _end_or_beat(self, stream: Stream, now: float, moment: float) -> None:
        if stream.writing_since is not None and moment - stream.writing_since >= self._stalled_seconds:
            stream.finish(End.STALLED)
            self._cut_off(stream)
        elif stream.admission.ends_at is not None and stream.admission.ends_at <= now:
            stream.finish(End.EXPIRED)
        elif stream.renew_at <= now:
            stream.finish(End.RENEW)
        elif not stream.has_synced and moment - stream.opened_at >= _SYNC_SECONDS:
            # Redis is away. The client fetches the inbox all the same, and once more when Redis is back.
            stream.sync()
        elif moment - stream.touched_at >= self._heartbeat_seconds:
            stream.beat()

    async def _check(self, credential: Credential, streams: list[Stream]) -> None:
        """Look at a credential again. While that cannot be told its streams go on: nobody could have ended it."""
        try:
            next_at = await self._look_again(credential)
        except Unauthenticated:
            for stream in streams:
                stream.finish(End.EXPIRED)
            return
        except (Unavailable, DatabaseBusyError, DatabaseDownError) as error:
            _log.info("stream_check_postponed", streams=len(streams), reason=type(error).__name__)
            next_at = time.time() + _AGAIN_SECONDS
        finally:
            self._looks.pop(credential, None)
        for stream in streams:
            stream.check_at = next_at
