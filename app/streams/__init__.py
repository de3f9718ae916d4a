"""Live inboxes: Redis → server-sent events. `run` is the whole process behind `arauto stream`.

One event loop, one subscription to Redis, and as many open requests as clients follow an inbox. It is a process
of its own, so that no open stream holds a thread or a database connection of the API. Nothing is kept here: the
tables are the truth, a frame only says that there is something to fetch, and a client that may have missed one is
told to fetch everything. So this process can die, and Redis can lose what was published, without a wrong inbox.
"""

import asyncio
import resource
import signal
from collections.abc import Callable

from aiohttp import web

from app.observability import metrics
from app.observability.logging import announce, configure, get_logger
from app.settings import Settings
from app.streams.hub import Hub
from app.streams.rounds import Rounds
from app.streams.server import StreamServer
from app.streams.subscription import Subscription
from app.wiring_streams import StreamServices, stream_services

__all__ = ["run", "serve"]

_STOP_SECONDS = 2.0
"""aiohttp waits this long for streams to end, and as long again after it has cancelled them."""
_BACKLOG = 1024
_FILES_BESIDE = 128
_MAX_HEADER_BYTES = 16_384

_log = get_logger(__name__)


def run(settings: Settings) -> int:
    """Serve streams until SIGTERM or SIGINT; return the exit code of the process."""
    configure(settings, process="stream")
    metrics.serve(settings)
    _allow_files(settings.stream_limit + _FILES_BESIDE)
    asyncio.run(_until_signal(settings))
    return 0


async def _until_signal(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stream_services(settings), stop, lambda: announce("stream_started"))
    _log.info("stream_stopped")


async def serve(
    settings: Settings, services: StreamServices, stop: asyncio.Event, started: Callable[[], None]
) -> None:
    """Serve on STREAM_HOST and STREAM_PORT until `stop` is set, then end every stream within 5 seconds."""
    subscription = Subscription(services.connect)
    hub = Hub(
        subscription.want,
        limit=settings.stream_limit,
        user_limit=settings.stream_user_limit,
        buffer=settings.stream_buffer,
    )
    server = StreamServer(settings, hub, services.open_stream, lambda: subscription.is_up)
    rounds = Rounds(
        hub,
        server.look_again,
        server.cut_off,
        heartbeat_seconds=settings.stream_heartbeat_seconds,
        stalled_seconds=settings.stream_stalled_seconds,
    )
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_STOP_SECONDS,
        max_field_size=_MAX_HEADER_BYTES,
        max_line_size=_MAX_HEADER_BYTES,
    )
    await runner.setup()
    tasks = [asyncio.create_task(subscription.run(hub)), asyncio.create_task(rounds.run())]
    try:
        await web.TCPSite(runner, settings.stream_host, settings.stream_port, backlog=_BACKLOG).start()
        started()
        await _first(stop, tasks)
    finally:
        server.stop()
        await runner.cleanup()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()


async def _first(stop: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """Wait for `stop`; raise what a task that should never end has ended with."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done:
        task.result()


def _allow_files(wanted: int) -> None:
    """Raise the limit of open files as far as one may: each stream is one, and 1,024 is a usual limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            _log.warning("stream_files_limited", allowed=allowed, wanted=wanted)
