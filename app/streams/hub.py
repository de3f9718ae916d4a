"""Who listens to what: the open streams of this process by channel, and the places that are left.

One subscription serves all streams of a user: it begins with the first and ends with the last. A stream gets a
`sync` whenever Redis says that its channel is subscribed from now on, so that nothing which was published before
can be missed: a client that fetches the inbox after a `sync` sees all that came earlier, and hears all that comes
later.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.domain.inbox_channel import inbox_channel
from app.observability import metrics
from app.observability.logging import get_logger
from app.services.open_stream import Admission
from app.streams.frames import frame_of
from app.streams.stream import End, Stream

_log = get_logger(__name__)


class FullError(Exception):
    """The process has no place left."""


class CrowdedError(Exception):
    """The user has as many streams as one may have."""


class Hub:
    """The streams of one process. `subscribe` is told of channels that are wanted, or no longer wanted."""

    def __init__(
        self, subscribe: Callable[[str, bool], None], *, limit: int, user_limit: int, buffer: int
    ) -> None:
        self._subscribe = subscribe
        self._limit = limit
        self._user_limit = user_limit
        self._buffer = buffer
        self._places = 0
        self._channels: dict[str, set[Stream]] = {}
        self._ready: set[str] = set()

    @contextmanager
    def place(self, *, is_open: bool = True) -> Iterator[None]:
        """Hold a place while a stream is being opened and is open; raise FullError when none is to be had.

        It is taken before the caller is proven, so that a flood of strangers is bounded too.
        """
        if not is_open or self._places >= self._limit:
            raise FullError
        self._places += 1
        try:
            yield
        finally:
            self._places -= 1

    def join(self, admission: Admission, renew_at: float) -> Stream:
        """Return a new stream of that user; raise CrowdedError when the user has too many.

        The newest is refused, not the oldest ended: clients connect again by themselves, and two of them would
        take the last place from each other for ever.
        """
        channel = inbox_channel(admission.tenant_id, admission.user_id)
        streams = self._channels.get(channel, set())
        if len(streams) >= self._user_limit:
            raise CrowdedError
        stream = Stream(channel, admission, limit=self._buffer, renew_at=renew_at)
        if not streams:
            self._channels[channel] = streams
            self._subscribe(channel, True)
        streams.add(stream)
        metrics.STREAMS_OPEN.inc()
        if channel in self._ready:
            stream.sync()
        return stream

    def leave(self, stream: Stream) -> None:
        """Forget a stream that was open."""
        streams = self._channels[stream.channel]
        streams.discard(stream)
        metrics.STREAMS_OPEN.dec()
        metrics.STREAMS_ENDED.labels(stream.end or End.CLIENT).inc()
        if not streams:
            del self._channels[stream.channel]
            self._ready.discard(stream.channel)
            self._subscribe(stream.channel, False)

    def streams(self) -> list[Stream]:
        """Return all that are open now."""
        return [stream for streams in self._channels.values() for stream in streams]

    def channels(self) -> list[str]:
        """Return what has to be subscribed, on a connection that is new."""
        return list(self._channels)

    def subscribed(self, channel: str) -> None:
        """Redis hands out what is published there from now on."""
        streams = self._channels.get(channel)
        if streams is None:
            return
        self._ready.add(channel)
        for stream in streams:
            stream.sync()

    def disconnected(self) -> None:
        """Redis hands out nothing: whatever was subscribed has to be subscribed again."""
        self._ready.clear()

    def published(self, channel: str, message: bytes) -> None:
        """Hand a message on to every stream of its user."""
        streams = self._channels.get(channel)
        if not streams:
            return
        frame = frame_of(message)
        if frame is None:
            metrics.STREAM_DROPPED.labels("malformed").inc(len(streams))
            _log.warning("inbox_event_malformed", bytes=len(message))
            return
        metrics.STREAM_EVENTS.inc(len(streams))
        for stream in streams:
            dropped = stream.offer(frame)
            if dropped:
                metrics.STREAM_DROPPED.labels("slow").inc(dropped)
