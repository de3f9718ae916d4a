"""Removes `run.json` when the supervisor is killed, since scripts take that file for a stack that is ready.

A script of its own in a process of its own: it reads from a pipe that only the supervisor holds open, so the end
of the pipe is the end of the supervisor, however that came. It leaves the file alone when another supervisor has
the folder already; that one has removed it.
"""

import fcntl
import sys
import time
from pathlib import Path

_TRIES = 100
_PAUSE_SECONDS = 0.02


def main(folder: Path) -> None:
    """Wait for the supervisor's end, then clear its traces."""
    sys.stdin.buffer.read()
    with (folder / "up.lock").open("ab") as lock:
        # A dying process closes its files one by one: the pipe may be closed before the lock is.
        for _ in range(_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_PAUSE_SECONDS)
            else:
                (folder / "run.json").unlink(missing_ok=True)
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
