"""The supervisor's ear: stop, start and restart single processes of a running stack, for drills and repairs.

A unix socket in the data folder takes one JSON object a line and answers with one. Only who may enter the folder
can ask. A process that was stopped here stays down until it is started here, or the whole stack is.
"""

import asyncio
import contextlib
import json
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedded.keeper import Keeper

_PATH_LIMIT = 100
_READY_SECONDS = 90.0
_WIPED: dict[str, tuple[str, ...]] = {"kafka": ("kafka/log",), "valkey": ("valkey",)}
"""What `wipe` deletes, by process. PostgreSQL is the truth and is never wiped."""


class ControlError(Exception):
    """What was asked cannot be done; the message says what to do instead."""


class Control:
    """Serves the socket of one stack."""

    def __init__(self, folder: Path, keepers: Mapping[str, Keeper]) -> None:
        self._folder = folder
        self._keepers = keepers
        self._server: asyncio.Server | None = None

    async def open(self) -> bool:
        """Listen; False where the folder's path is too long for a socket, and then nobody can ask."""
        path = socket_of(self._folder)
        if len(str(path)) > _PATH_LIMIT:
            return False
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, path)
        path.chmod(0o600)
        return True

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            socket_of(self._folder).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            try:
                answer = await self._obey(json.loads(await reader.readline()))
            except (ControlError, ValueError, KeyError, TypeError, AttributeError) as error:
                answer = {"error": str(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        action = str(order["do"])
        if action == "ps":
            return {"processes": [_state(keeper) for keeper in self._keepers.values()]}
        name = str(order["name"])
        keeper = self._keepers.get(name)
        if keeper is None:
            raise ControlError(f"there is no process {name!r}: choose from {', '.join(self._keepers)}")
        if action in {"stop", "restart"}:
            await keeper.hold()
        if order.get("wipe"):
            await asyncio.to_thread(self._wipe, keeper)
        if action in {"start", "restart"}:
            keeper.resume()
            async with asyncio.timeout(_READY_SECONDS):
                await keeper.ready.wait()
        return _state(keeper)

    def _wipe(self, keeper: Keeper) -> None:
        if keeper.name == "kafka" and not (self._folder / "kafka").exists():
            return  # the light broker keeps nothing
        if keeper.name not in _WIPED:
            raise ControlError(f"{keeper.name} is never wiped: only {' and '.join(_WIPED)} can be")
        if keeper.pid is not None:
            raise ControlError(f"{keeper.name} runs: wipe it with stop or restart")
        for part in _WIPED[keeper.name]:
            shutil.rmtree(self._folder / part, ignore_errors=True)


def socket_of(folder: Path) -> Path:
    """Return where the supervisor of `folder` listens."""
    return folder / "control.sock"


def ask(folder: Path, order: dict[str, Any], seconds: float = 150.0) -> dict[str, Any]:
    """Send one order to the supervisor of `folder` and return its answer; raise ControlError when it cannot."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(seconds)
        try:
            line.connect(str(socket_of(folder)))
            line.sendall(json.dumps(order).encode() + b"\n")
            answer: dict[str, Any] = json.loads(line.makefile("rb").readline())
        except (OSError, ValueError) as error:
            raise ControlError(
                f"no stack answers in {folder}: start one with `arauto up --data {folder}`"
            ) from error
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer


def _state(keeper: Keeper) -> dict[str, Any]:
    state = "ready" if keeper.ready.is_set() else "starting" if keeper.pid is not None else "down"
    return {"name": keeper.name, "pid": keeper.pid, "state": state}
