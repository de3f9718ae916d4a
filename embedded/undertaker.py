"""Removes `run.json` when the supervisor is killed, since scripts take that file for a stack that is ready.

A script of its own in a process of its own: it reads from a pipe that only the supervisor holds open, so the end of
the pipe is the end of the supervisor, however that came. It leaves the file alone when another supervisor has the
folder already.
"""

import contextlib
import fcntl
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Wait for the supervisor's end, then clear its traces."""
    sys.stdin.buffer.read()
    with (folder / "up.lock").open("ab") as lock, contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / "run.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
