"""A mail server that says exactly what a test tells it to, over a real socket, and remembers what it was told."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

CLOSE = ""
"""As a reply: close the connection without one."""
SILENCE = "…"
"""As a reply: never answer."""

SUCCESS = {
    "GREETING": "220 fake",
    "STARTTLS": "220 go on",
    "DATA": "354 go on",
    "BODY": "250 2.0.0 queued as Q1",
    "AUTH": "235 ok",
}


@dataclass
class FakeSmtp:
    """Replies by verb (GREETING, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA, BODY, RSET); the rest is success.

    A list of replies is used up one by one, its last one for good.
    """

    replies: dict[str, list[str]] = field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    port: int = 0
    connections: int = 0
    commands: list[str] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeSmtp"]:
        """Listen on a free port while the block runs."""
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def verbs(self) -> list[str]:
        """The verbs of all commands, in order."""
        return [command.split()[0].upper() for command in self.commands]

    def _reply(self, verb: str) -> str:
        given = self.replies.get(verb)
        if not given:
            return SUCCESS.get(verb, "250 ok")
        return given.pop(0) if len(given) > 1 else given[0]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            if await self._say(writer, "GREETING"):
                while line := await reader.readline():
                    if not await self._command(line.decode("utf-8").strip(), reader, writer):
                        break
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            self.commands.append("LOST")  # ends quietly: asyncio would log a cancelled connection as an error
        finally:
            writer.close()

    async def _command(self, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.commands.append(command)
        verb = command.split(maxsplit=1)[0].upper()
        if verb == "EHLO":
            lines = ["fake", *self.extensions]
            marks = ["-"] * (len(lines) - 1) + [" "]
            writer.write("".join(f"250{mark}{line}\r\n" for mark, line in zip(marks, lines, strict=True)).encode())
            return True
        if not await self._say(writer, verb):
            return False
        if verb == "STARTTLS" and self.tls is not None:
            await writer.start_tls(self.tls)
        if verb == "DATA" and "DATA" not in self.replies:
            self.messages.append((await reader.readuntil(b"\r\n.\r\n"))[:-3])
            return await self._say(writer, "BODY")
        return verb != "QUIT"

    async def _say(self, writer: asyncio.StreamWriter, verb: str) -> bool:
        reply = self._reply(verb)
        if reply == SILENCE:
            await asyncio.Event().wait()
        if reply == CLOSE:
            return False
        writer.write(reply.encode() + b"\r\n")
        await writer.drain()
        return not reply.startswith("421")
