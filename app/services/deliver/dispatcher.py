"""The event loop of a worker process: it streams the calls of all lanes, each call a task of its own.

The fence stands immediately before the send: past it the lease may be over, or the deadline of the delivery, and
the call does not begin. A call that outlives its adapter's own deadline is cancelled and recorded as unknown, so a
place in the window is always freed, whatever the pool and the provider do. No database, no Redis is touched here.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Thread
from time import monotonic
from typing import cast

from app.observability.logging import get_logger
from app.services.deliver.lane import Lane
from app.services.deliver.work import Finished, Work
from providers.base import AtOnceProvider, Message, Provider
from providers.outcome import Outcome, Unknown

log = get_logger(__name__)

_GRACE_SECONDS = 1.0
_WATCH_SECONDS = 0.5
_START_SECONDS = 10.0

Finish = Callable[[Lane, list[Finished]], None]
GiveBack = Callable[[Lane, list[Work], float, str], None]


class Dispatcher:
    """Runs calls. `finish` and `give_back` are called in the loop's thread and must not block."""

    def __init__(self, finish: Finish, give_back: GiveBack) -> None:
        self._finish = finish
        self._give_back = give_back
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="dispatcher", daemon=True)
        self._running: dict[Lane, dict[Work, asyncio.Task[None]]] = {}

    def start(self, providers: Iterable[Provider]) -> None:
        """Start the loop and open the providers in it; one that cannot be opened is logged."""
        self._thread.start()
        for provider in providers:
            future = asyncio.run_coroutine_threadsafe(provider.start(), self._loop)
            try:
                future.result(_START_SECONDS)
            except Exception:
                log.exception("provider_start_failed", provider=provider.name)

    def submit(self, lane: Lane, work: list[Work]) -> None:
        """Begin the calls of claimed `work`; called by claim threads."""
        self._loop.call_soon_threadsafe(self._begin, lane, work)

    def stop(self, providers: Iterable[Provider]) -> None:
        """End what still runs as unknown, close the providers and the loop."""
        if not self._thread.is_alive():
            return
        try:
            asyncio.run_coroutine_threadsafe(self._end(list(providers)), self._loop).result(_START_SECONDS)
        except TimeoutError:
            # What the recorder has by now must still be written, so a provider that does not close is left behind.
            log.warning("providers_not_closed", waited_seconds=_START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_SECONDS)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_later(_WATCH_SECONDS, self._watch)
        self._loop.run_forever()

    def _begin(self, lane: Lane, work: list[Work]) -> None:
        if hasattr(lane.provider, "send_at_once"):
            self._send_at_once(lane, cast("AtOnceProvider", lane.provider), work)
            return
        running = self._running.setdefault(lane, {})
        for item in work:
            running[item] = self._loop.create_task(self._call(lane, item))

    def _send_at_once(self, lane: Lane, provider: AtOnceProvider, work: list[Work]) -> None:
        done: list[Finished] = []
        late: list[Work] = []
        for item in work:
            item.started = monotonic()
            if item.started >= item.fence_until:
                late.append(item)
            else:
                try:
                    outcome = provider.send_at_once(_timed(item))
                except Exception as error:
                    log.exception("adapter_raised", provider=provider.name, delivery_id=item.id)
                    outcome = Unknown("adapter_error", type(error).__name__)
                done.append(Finished(item, outcome, monotonic()))
        lane.window.release(len(work))
        if done:
            self._finish(lane, done)
        if late:
            self._too_late(lane, late)

    async def _call(self, lane: Lane, item: Work) -> None:
        if not await _has_turn(lane) or monotonic() >= item.fence_until:
            if self._running[lane].pop(item, None) is not None:
                lane.window.release(1)
                self._too_late(lane, [item])
            return
        item.started = monotonic()
        try:
            outcome = await lane.provider.send(_timed(item))
        except asyncio.CancelledError:
            outcome = Unknown("cancelled", "the call was cut off by this worker")
        except Exception as error:
            log.exception("adapter_raised", provider=lane.provider.name, delivery_id=item.id)
            outcome = Unknown("adapter_error", type(error).__name__)
        self._end_call(lane, item, outcome)

    def _end_call(self, lane: Lane, item: Work, outcome: Outcome) -> None:
        if self._running[lane].pop(item, None) is not None:
            lane.window.release(1)
            self._finish(lane, [Finished(item, outcome, monotonic())])

    def _too_late(self, lane: Lane, late: list[Work]) -> None:
        log.info("fence_refused", lane=str(lane.key), count=len(late))
        self._give_back(lane, late, 0.0, "fence")

    def _watch(self) -> None:
        """Cut off the calls that outlived their adapter's deadline; the oldest stand first."""
        self._loop.call_later(_WATCH_SECONDS, self._watch)
        now = monotonic()
        for lane, running in self._running.items():
            limit = now - lane.provider.deadline_seconds - _GRACE_SECONDS
            overdue: list[tuple[Work, asyncio.Task[None]]] = []
            for item, task in running.items():
                if item.started > limit:
                    break
                if item.started:
                    overdue.append((item, task))
            for item, task in overdue:
                log.warning("call_cut_off", lane=str(lane.key), delivery_id=item.id)
                outcome = Unknown("deadline", f"no end within {lane.provider.deadline_seconds:g} s")
                self._end_call(lane, item, outcome)
                task.cancel()

    async def _end(self, providers: list[Provider]) -> None:
        tasks = [task for running in self._running.values() for task in running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for provider in providers:
            try:
                await provider.close()
            except Exception:
                log.exception("provider_close_failed", provider=provider.name)


def _timed(item: Work) -> Message:
    """Return the message with what is left of its life, counted from before the claim: rather less than more."""
    if item.expires_at is None:
        return item.message
    return replace(item.message, ttl_seconds=max(int(item.expires_at - item.started), 0))


async def _has_turn(lane: Lane) -> bool:
    """Wait for a start's turn; False when this worker ends meanwhile, and then no call has begun."""
    try:
        while (wait := lane.pacer.hold_seconds(monotonic())) > 0:  # noqa: ASYNC110  the turn comes with the clock
            await asyncio.sleep(wait)
    except asyncio.CancelledError:
        return False
    return True
