"""Which ports a stack uses: the usual one, else the next free one, apart from other stacks of this machine."""

import contextlib
import fcntl
import os
import socket
import tempfile
from pathlib import Path

import psutil

_TRIES = 200


def is_free(port: int) -> bool:
    """Return whether nothing on the loopback interface or on all interfaces uses `port`."""
    for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104  only asked, never listened on
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def free_port() -> int:
    """Return a port that the kernel says is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(pid: int, port: int) -> bool:
    """Return whether the process, or one that it started, listens on `port`; a stranger on it does not count."""
    try:
        leader = psutil.Process(pid)
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for process in (leader, *leader.children(recursive=True))
            for connection in process.net_connections("tcp")
        )
    except psutil.Error:
        return False


class PortBook:
    """The ports that one stack has taken.

    A lock file per port, held for the life of the stack, keeps two stacks that start at the same moment from
    choosing the same port before either server listens on it.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / "arauto-ports"
        # Shared by all users of the machine, as /tmp itself is: their stacks use the same ports.
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir()
            self._folder.chmod(0o1777)
        self._held: dict[int, int] = {}

    def take(self, wanted: int) -> int:
        """Return `wanted`, or the next port above it that is free; raise OSError when there is none near."""
        for port in range(wanted, min(wanted + _TRIES, 65_536)):
            if port not in self._held and is_free(port) and self._reserve(port):
                return port
        raise OSError(f"no free port from {wanted} to {wanted + _TRIES}: stop what uses them")

    def _reserve(self, port: int) -> bool:
        file = self._folder / f"{port}.lock"
        try:
            descriptor = os.open(file, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644)
        except PermissionError:  # another user's file in a sticky folder: it can be locked, not created
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._held[port] = descriptor
        return True

    def close(self) -> None:
        """Give all ports back."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()
