"""The supervisor behind `arauto up`: starts everything in order, keeps it running, stops all of it.

One asyncio loop in the main thread. Every process is started from that thread, since the kernel's death signal
watches the thread that started a child; only questions ("are you ready?") and preparations run in other threads.
A server that was there already (DATABASE_URL, REDIS_URL, KAFKA_BOOTSTRAP_SERVERS) is used and never touched.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.settings import Settings
from embedded.control import Control
from embedded.folder import DataFolder
from embedded.keeper import Keeper, Recipe, StartError, ended, with_environment
from embedded.parts import Job, Part, jobs, parts, token_command
from embedded.processes import MARK, Child, Launch, tail
from embedded.server import ServerError
from embedded.servers import Servers
from embedded.summary import summary
from embedded.terminal import Terminal

_TOKEN_SECONDS = 30 * 86_400
_JOB_TRIES = 5
_JOB_SECONDS = 120.0
_TRIM_SECONDS = 30.0
_ORDER_OF_STOPPING = (("sandbox", "kafka", "valkey"), ("postgres",))


class Stack:
    """All processes of one data folder."""

    def __init__(self, folder: DataFolder, settings: Settings, broker: str, terminal: Terminal) -> None:
        self._folder = folder
        self._settings = settings
        self._terminal = terminal
        self._broker = broker
        self._servers = Servers(folder, settings, terminal)
        self._keepers: dict[str, Keeper] = {}
        self._parts: dict[str, Part] = {}
        self._done: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._token = ""
        self._is_published = False
        self._begun = time.monotonic()
        self._control = Control(folder.path, self._keepers)

    async def run(self) -> int:
        """Start, stay until a signal or a failure, stop; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(16, thread_name_prefix="ask"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # started by nohup: it is meant to outlive its terminal
            loop.add_signal_handler(number, self._on_signal, number)
        code = 0
        try:
            if not await self._control.open():
                self._terminal.event("up", "the data folder's path is too long for a socket: no `arauto stack`")
            self._spawn(self._start())
            await self._until_stopped()
        except (StartError, ServerError) as error:
            self._terminal.block(f"\narauto: {error}\n  → the logs are in {self._folder.logs}\n")
            code = 1
        finally:
            await self._stop_all()
        return code

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set() and number is signal.SIGINT:
            self._terminal.block("asked twice: ending everything at once")
            for keeper in self._keepers.values():
                keeper.kill()
            return
        self._terminal.block(f"\n{number.name}: stopping everything (once more Ctrl-C ends it at once)")
        self._stop.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    async def _until_stopped(self) -> None:
        stop = asyncio.get_running_loop().create_task(self._stop.wait())
        try:
            while not stop.done():
                running = {task for task in self._tasks if not task.done()}
                await asyncio.wait({stop, *running}, timeout=_TRIM_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in self._tasks if task.done()]:
                    self._tasks.discard(task)
                    task.result()
                await asyncio.to_thread(self._folder.trim_logs)
        finally:
            stop.cancel()

    async def _start(self) -> None:
        self._spawn(self._mint())
        for recipe in self._servers.recipes():
            self._keep(recipe)
        for name in self._servers.given():
            self._event(name).set()
        # Chosen while PostgreSQL starts: it may have to fetch Kafka first.
        kafka = await self._servers.choose_broker(self._broker)
        if kafka is not None:
            self._keep(kafka)
        elif self._servers.with_kafka:
            self._event("kafka").set()
        for job in jobs(with_kafka=self._servers.with_kafka):
            self._spawn(self._do(job))
        with_kafka = self._servers.with_kafka
        for part in parts(self._servers.ports, with_kafka=with_kafka):
            self._parts[part.name] = part
            self._spawn(self._keep_part(part))
        await self._until_ready()

    async def _until_ready(self) -> None:
        names = [*self._keepers, *(name for name in self._parts if name not in self._keepers)]
        for name in names:
            await self._event(name).wait()
        await self._event("token").wait()
        self._is_published = True
        self._publish()
        seconds = time.monotonic() - self._begun
        self._terminal.block(summary(self._about(), self._folder.path, seconds))

    def _event(self, name: str) -> asyncio.Event:
        return self._done.setdefault(name, asyncio.Event())

    def _keep(self, recipe: Recipe) -> None:
        if self._stop.is_set():
            return
        keeper = Keeper(recipe, self._terminal, self._on_change)
        self._keepers[recipe.name] = keeper
        self._spawn(keeper.run())

    async def _keep_part(self, part: Part) -> None:
        for name in part.needs:
            await self._event(name).wait()
        recipe = Recipe(
            part.name,
            launch=lambda: self._launch_of(part),
            is_ready=lambda _, sight: part.is_ready(sight),
            prepare=lambda _: None,
            port=self._servers.ports.get(part.name),
        )
        self._keep(recipe)

    def _launch_of(self, part: Part) -> Launch:
        launch = Launch(
            part.command,
            self._folder.logs / f"{part.name}.log",
            stop_seconds=part.stop_seconds,
            death_signal=part.death_signal,
            niceness=part.niceness,
        )
        return with_environment(launch, self._servers.environment())

    def _on_change(self, keeper: Keeper) -> None:
        """A process was started or became ready."""
        if keeper.ready.is_set():
            self._event(keeper.name).set()
            if keeper.name == "kafka":
                self._event("kafka.again").set()
                if self._servers.address_changed():
                    self._replace_clients_of_kafka()
        if self._is_published:
            self._publish()

    def _replace_clients_of_kafka(self) -> None:
        for name, part in self._parts.items():
            if part.wants_kafka_address and name in self._keepers:
                self._keepers[name].replace("the light broker came back with another address")

    async def _do(self, job: Job) -> None:
        await self._event(job.after).wait()
        while True:
            again = self._event(f"{job.after}.again")
            again.clear()
            await self._try_job(job)
            self._event(job.name).set()
            if not job.on_every_start:
                return
            await again.wait()

    async def _try_job(self, job: Job) -> None:
        log = self._folder.logs / f"{job.name}.log"
        for left in reversed(range(_JOB_TRIES)):
            begun = time.monotonic()
            child = Child(with_environment(Launch(job.command, log), self._servers.environment()))
            is_over = await ended(child, _JOB_SECONDS)
            child.kill()
            if is_over and child.poll() == 0:
                self._terminal.event(job.name, f"done in {time.monotonic() - begun:.1f} s")
                return
            if left:
                await asyncio.sleep(1)
        if self._event(job.name).is_set():
            self._terminal.event(job.name, f"failed, see {log}")  # the stack has run: do not end it for this
            return
        raise StartError(f"`arauto {job.name}` failed; the end of {log}:\n{tail(log)}")

    async def _mint(self) -> None:
        log = self._folder.logs / "token.log"
        seconds = min(_TOKEN_SECONDS, self._settings.jwt_max_lifetime_seconds)
        child = Child(Launch(token_command(seconds), log, captures_output=True))
        self._token = (await asyncio.to_thread(child.output.read)).decode().strip()
        child.kill()
        if not self._token:
            raise StartError(f"`arauto token` failed; the end of {log}:\n{tail(log)}")
        self._event("token").set()

    def _about(self) -> dict[str, object]:
        processes = [
            {"name": name, "pid": keeper.pid} for name, keeper in self._keepers.items() if keeper.pid is not None
        ]
        return {**self._servers.addresses(), "token": self._token, "processes": processes}

    def _publish(self) -> None:
        self._folder.publish(self._about())

    async def _stop_all(self) -> None:
        self._control.close()
        self._is_published = False
        self._stop.set()
        last = {name for names in _ORDER_OF_STOPPING for name in names}
        first = tuple(name for name in self._keepers if name not in last)
        for names in (first, *_ORDER_OF_STOPPING):
            await asyncio.gather(*(self._keepers[name].stop() for name in names if name in self._keepers))
        for task in self._tasks:
            task.cancel()
        # Ends also what a preparation has started (Maven, initdb), which would keep its thread waiting.
        await asyncio.to_thread(self._folder.sweep)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._servers.close()


def run_stack(data: Path, broker: str) -> int:
    """Run the whole stack on the folder `data` until it is stopped; return the exit code."""
    terminal = Terminal()
    folder = DataFolder(data)
    try:
        folder.hold()
    except ServerError as error:
        terminal.block(f"arauto: {error}")
        return 2
    # Inherited by everything that is started from here on, so that the next start finds what was left over.
    os.environ[MARK] = str(folder.path)
    try:
        if left := folder.sweep():
            terminal.event("up", f"ended what an earlier run had left: {', '.join(left)}")
        return _loop(lambda: Stack(folder, Settings(), broker, terminal))
    finally:
        folder.release()
        terminal.event("up", f"stopped; the data stay in {folder.path}")


def _loop(make: Callable[[], Stack]) -> int:
    async def main() -> int:
        return await make().run()

    return asyncio.run(main())
