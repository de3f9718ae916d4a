"""The supervisor's parts: restart with back-off, orderly stop, left-overs, ports, the folder's lock, run.json."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from embedded.control import Control, ControlError, ask
from embedded.folder import DataFolder
from embedded.keeper import Keeper, Recipe, StartError
from embedded.ports import PortBook, free_port, listens
from embedded.processes import MARK, Child, Launch
from embedded.server import ServerError
from embedded.terminal import Terminal
from tests.waiting import eventually

_SLEEPER = "import signal, time; print('up', flush=True); time.sleep(600)"


class _Lines:
    """A stream that keeps what was written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        return

    def isatty(self) -> bool:
        return False


def _keeper(tmp_path: Path, program: str, lines: _Lines, **launch: object) -> Keeper:
    made = Launch([sys.executable, "-c", program], tmp_path / "log", **launch)
    recipe = Recipe("part", lambda: made, lambda _, sight: sight.says(rb"up"), lambda _: None, start_seconds=20)
    return Keeper(recipe, Terminal(lines), lambda _: None)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  what is waited for is a process
            await asyncio.sleep(0.02)


def test_a_killed_process_comes_back_with_another_pid(tmp_path: Path) -> None:
    """After kill -9 comes a new start, and the line says which signal ended it."""
    lines = _Lines()

    async def scenario() -> None:
        keeper = _keeper(tmp_path, _SLEEPER, lines)
        running = asyncio.create_task(keeper.run())
        await asyncio.wait_for(keeper.ready.wait(), 20)
        first = keeper.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await _until(lambda: keeper.ready.is_set() and keeper.pid not in {None, first})
        await keeper.stop()
        await running

    asyncio.run(scenario())
    assert "was ended by SIGKILL; starting again in 0.5 s" in lines.text
    assert "stopped" in lines.text


def test_a_process_that_never_gets_ready_is_given_up_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken installation ends the start with the reason instead of turning in circles."""
    monkeypatch.setattr("embedded.keeper._FIRST_DELAY_SECONDS", 0.01)

    async def scenario() -> None:
        await _keeper(tmp_path, "raise SystemExit('no such colour')", _Lines()).run()

    with pytest.raises(StartError, match="no such colour"):
        asyncio.run(scenario())


def test_a_process_that_ignores_the_request_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    """The stop of the stack never hangs on one part, and its own children go with it."""
    lines = _Lines()
    program = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print('up', child.pid, flush=True); time.sleep(600)"
    )

    async def scenario() -> None:
        keeper = _keeper(tmp_path, program, lines, stop_seconds=0.3)
        running = asyncio.create_task(keeper.run())
        await asyncio.wait_for(keeper.ready.wait(), 20)
        await keeper.stop()
        await running

    asyncio.run(scenario())
    grandchild = int((tmp_path / "log").read_text().split()[-1])
    eventually(lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == "zombie")
    assert "killed: it did not stop" in lines.text


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """After kill -9 of the supervisor the kernel ends what it had started."""
    program = (
        "import pathlib, sys, time; from embedded.processes import Child, Launch;"
        f"log = pathlib.Path({str(tmp_path)!r}) / 'log';"
        "child = Child(Launch([sys.executable, '-c', 'import time; time.sleep(600)'], log));"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_the_next_start_ends_what_an_earlier_one_left(tmp_path: Path) -> None:
    """A process that outlived its supervisor is found by its mark; one of another stack is not touched."""
    ours = Child(Launch([sys.executable, "-c", _SLEEPER], tmp_path / "a", {MARK: str(tmp_path / "stack")}))
    other = Child(Launch([sys.executable, "-c", _SLEEPER], tmp_path / "b", {MARK: str(tmp_path / "other")}))
    try:
        eventually(lambda: "up" in (tmp_path / "a").read_text() and "up" in (tmp_path / "b").read_text())
        folder = DataFolder(tmp_path / "stack").hold()
        assert len(folder.sweep()) == 1
        folder.release()
        assert ours.wait(10)
        assert other.poll() is None
    finally:
        ours.kill()
        other.kill()


def test_a_second_stack_on_the_same_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    """The message says who has it and what to do."""
    first = DataFolder(tmp_path).hold()
    with pytest.raises(ServerError, match=rf"pid {os.getpid()}.*--data"):
        DataFolder(tmp_path).hold()
    first.release()
    DataFolder(tmp_path).hold().release()


def test_run_json_is_whole_private_and_gone_at_the_end(tmp_path: Path) -> None:
    """Scripts wait for this file; it carries a token, so nobody else may read it."""
    folder = DataFolder(tmp_path).hold()
    folder.publish({"api": "http://127.0.0.1:8000"})
    file = tmp_path / "run.json"
    assert json.loads(file.read_text()) == {"api": "http://127.0.0.1:8000"}
    assert file.stat().st_mode & 0o077 == 0
    folder.release()
    assert not file.exists()


def test_run_json_of_a_killed_stack_is_gone_before_the_next_is_ready(tmp_path: Path) -> None:
    """A script must not take the file of the run before for the new one."""
    (tmp_path / "run.json").write_text("{}")
    folder = DataFolder(tmp_path).hold()
    assert not (tmp_path / "run.json").exists()
    folder.release()


def test_run_json_of_a_killed_stack_is_removed_at_once(tmp_path: Path) -> None:
    """A script that starts the next stack right after kill -9 must not read the file of the one before."""
    program = (
        "import pathlib, time; from embedded.folder import DataFolder;"
        f"folder = DataFolder(pathlib.Path({str(tmp_path)!r})).hold();"
        "folder.publish({}); print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        assert (tmp_path / "run.json").exists()
        holder.kill()
    eventually(lambda: not (tmp_path / "run.json").exists())


def test_a_full_log_is_put_aside_while_its_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack that runs for weeks does not fill the disk with logs."""
    monkeypatch.setattr("embedded.folder._LOG_BYTES", 10)
    folder = DataFolder(tmp_path).hold()
    log = folder.logs / "api.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a long first line\n")
        folder.trim_logs()
        writer.write(b"next\n")
    assert log.read_bytes() == b"next\n"
    assert (folder.logs / "api.log.1").read_bytes() == b"a long first line\n"
    folder.release()


def test_a_taken_port_gives_the_next_free_one() -> None:
    """A server of the machine's own on the usual port is left in peace."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        book = PortBook()
        assert port < book.take(port) <= port + 200
        book.close()


def test_two_stacks_that_start_at_once_get_different_ports() -> None:
    """The second sees the first one's choice although nothing listens there yet."""
    port = free_port()
    first, second = PortBook(), PortBook()
    try:
        assert first.take(port) != second.take(port)
    finally:
        first.close()
        second.close()


def test_a_stranger_on_the_port_does_not_make_a_process_ready(tmp_path: Path) -> None:
    """Another program took the port after it was chosen: its answers are not ours."""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        child = Child(Launch([sys.executable, "-c", _SLEEPER], tmp_path / "log"))
        try:
            assert not listens(child.pid, port)
            assert listens(os.getpid(), port)
        finally:
            child.kill()


def test_the_terminal_may_go_away() -> None:
    """Output to a closed terminal is dropped; the orderly stop goes on."""

    class Closed(_Lines):
        def write(self, text: str) -> None:
            raise OSError(5, "Input/output error")

    terminal = Terminal(Closed())
    terminal.event("api", "ready")
    terminal.block("still here")


def test_a_process_that_was_stopped_stays_down_until_it_is_started(tmp_path: Path) -> None:
    """`arauto stack stop` holds, `start` brings it back with another pid; nonsense gets an answer."""
    lines = _Lines()

    async def scenario() -> None:
        keeper = _keeper(tmp_path, _SLEEPER, lines)
        control = Control(tmp_path, {"part": keeper})
        assert await control.open()
        running = asyncio.create_task(keeper.run())
        await asyncio.wait_for(keeper.ready.wait(), 20)
        first = keeper.pid
        assert await asyncio.to_thread(ask, tmp_path, {"do": "stop", "name": "part"}) == {
            "name": "part",
            "pid": None,
            "state": "down",
        }
        with pytest.raises(ControlError, match="choose from part"):
            await asyncio.to_thread(ask, tmp_path, {"do": "stop", "name": "nobody"})
        with pytest.raises(ControlError, match="never wiped"):
            await asyncio.to_thread(ask, tmp_path, {"do": "stop", "name": "part", "wipe": True})
        assert keeper.pid is None
        answer = await asyncio.to_thread(ask, tmp_path, {"do": "start", "name": "part"})
        assert answer["state"] == "ready"
        assert answer["pid"] not in {None, first}
        control.close()
        await keeper.stop()
        await running

    asyncio.run(scenario())
