"""Keeps one process running: prepare, start, watch for readiness and death, start again with back-off, stop.

A process that has never been ready is given up after a few tries, since then something is wrong that no restart
mends; one that was ready once is brought back for as long as the stack runs.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from embedded.parts import Sight
from embedded.ports import listens
from embedded.processes import Child, Launch, tail
from embedded.server import Say, ServerError
from embedded.terminal import Terminal

_WATCH_SECONDS = 0.1
_STEADY_SECONDS = 20.0
_FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 30.0
_TRIES_BEFORE_READY = 6


class StartError(Exception):
    """Something that the stack needs does not start; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one process is made: blocking calls, run in a thread, apart from `launch`."""

    name: str
    launch: Callable[[], Launch]
    is_ready: Callable[[Child, Sight], bool]
    prepare: Callable[[Say], None]
    start_seconds: float = 90.0
    port: int | None = None


class Keeper:
    """One process of the stack and its life."""

    def __init__(self, recipe: Recipe, terminal: Terminal, on_change: Callable[["Keeper"], None]) -> None:
        self.recipe = recipe
        self.name = recipe.name
        self.ready = asyncio.Event()
        self.has_been_ready = False
        self._child: Child | None = None
        self._terminal = terminal
        self._on_change = on_change
        self._is_stopping = False
        self._replaced_by = 0.0
        self._quick_deaths = 0
        self._wanted = asyncio.Event()
        self._wanted.set()

    @property
    def pid(self) -> int | None:
        """The pid of the process that runs now."""
        return self._child.pid if self._child is not None else None

    async def run(self) -> None:
        """Keep the process running until `stop`; raise StartError when it cannot be started at all."""
        while True:
            await self._wanted.wait()
            if self._is_stopping:
                return
            problem = await self._one_life()
            if self._is_stopping:
                return
            if not self._wanted.is_set():
                continue
            if self._replaced_by:
                self._replaced_by = 0.0
                continue
            self._quick_deaths += 1
            if not self.has_been_ready and self._quick_deaths >= _TRIES_BEFORE_READY:
                raise StartError(f"{self.name} does not start: {problem}")
            delay = min(_FIRST_DELAY_SECONDS * 2 ** (self._quick_deaths - 1), _LONGEST_DELAY_SECONDS)
            self._terminal.event(self.name, f"{problem.splitlines()[0]}; starting again in {delay:g} s")
            await asyncio.sleep(delay)

    async def _one_life(self) -> str:
        """Start the process, stay until it ends, and return why, with the end of its log if it never was ready."""
        try:
            await asyncio.to_thread(self.recipe.prepare, self._say)
            if self._is_stopping:
                return "stopped"
            launch = self.recipe.launch()
            log_start = launch.log.stat().st_size if launch.log.exists() else 0
            child = self._child = Child(launch)
        except (ServerError, OSError) as error:
            return str(error)
        self._on_change(self)
        was_ready = await self._watch(child, log_start)
        self._child = None
        self.ready.clear()
        if time.monotonic() - child.started_at > _STEADY_SECONDS:
            self._quick_deaths = 0
        status = child.poll()
        # What it leaves in its group would hold its port or its queue against its successor.
        child.end_group()
        child.close()
        return _ending(status) + ("" if was_ready else f"\n{tail(launch.log)}")

    async def _watch(self, child: Child, log_start: int) -> bool:
        """Return, once the process has ended, whether it had become ready."""
        while child.poll() is None:
            age = time.monotonic() - child.started_at
            if not self.ready.is_set() and not self._is_stopping:
                sight = Sight(child.launch.log, log_start, age)
                if await asyncio.to_thread(self._asks, child, sight):
                    self._became_ready(age)
                elif age > self.recipe.start_seconds:
                    self._terminal.event(self.name, f"not ready after {age:.0f} s, ending it")
                    child.end_group()
                    child.kill()
            if self._replaced_by and time.monotonic() > self._replaced_by:
                child.end_group()
            await asyncio.sleep(_WATCH_SECONDS)
        return self.ready.is_set()

    def _asks(self, child: Child, sight: Sight) -> bool:
        # A stranger may have taken the port since it was chosen, and would answer in place of ours.
        port = self.recipe.port
        try:
            return (port is None or listens(child.pid, port)) and self.recipe.is_ready(child, sight)
        except ServerError:
            return False

    def _became_ready(self, age: float) -> None:
        self._terminal.event(self.name, f"ready after {age:.1f} s (pid {self.pid})")
        self.has_been_ready = True
        self.ready.set()
        self._on_change(self)

    def _say(self, text: str) -> None:
        if text:
            self._terminal.progress(self.name, text)

    def replace(self, why: str) -> None:
        """Stop the running process so that a new one starts at once, with a new environment."""
        if self._child is not None and self._child.poll() is None:
            self._replaced_by = time.monotonic() + self._child.launch.stop_seconds
            self._terminal.event(self.name, f"starting anew: {why}")
            self._child.ask_to_stop()

    async def hold(self) -> None:
        """Stop the process and keep it down until `resume`."""
        self._wanted.clear()
        await self._end()
        while self._child is not None:  # noqa: ASYNC110  `run` notices the end at its next look
            await asyncio.sleep(_WATCH_SECONDS)

    def resume(self) -> None:
        """Start a process again that was held; nothing for one that runs."""
        self._wanted.set()

    async def stop(self) -> None:
        """Stop for good: cleanly, by force when its time is up."""
        self._is_stopping = True
        self._wanted.set()
        await self._end()

    async def _end(self) -> None:
        child = self._child
        if child is None:
            return
        begun = time.monotonic()
        child.ask_to_stop()
        is_clean = await ended(child, child.launch.stop_seconds)
        child.end_group()
        await asyncio.to_thread(child.kill)
        seconds = time.monotonic() - begun
        how = "stopped" if is_clean else f"killed: it did not stop in {child.launch.stop_seconds:.0f} s"
        self._terminal.event(self.name, f"{how} ({seconds:.1f} s)")

    def kill(self) -> None:
        """End it at once: the user asked for the second time."""
        self._is_stopping = True
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.end_group()


async def ended(child: Child, within_seconds: float) -> bool:
    """Return whether the process ended in time. It is polled: asyncio can only wait for processes of its own."""
    until = time.monotonic() + within_seconds
    while child.poll() is None and time.monotonic() < until:  # noqa: ASYNC110  a pid has no event to wait for
        await asyncio.sleep(_WATCH_SECONDS)
    return child.poll() is not None


def _ending(status: int | None) -> str:
    if status is None:
        return "ended"
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit code {status}"


def with_environment(launch: Launch, environment: dict[str, str]) -> Launch:
    """Return the launch with more variables for the child."""
    return replace(launch, environment={**launch.environment, **environment})
