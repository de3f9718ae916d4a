"""Which run of the server the cache speaks to.

A Redis that keeps its data on disk comes back from a crash with what it had some time before: entries that were
dropped since would be there again. The id of its run is part of every name, so what an earlier run held is never
found, and ends by its lifetime. It is asked for with each new connection, since a restart ends all of them.
"""

from typing import Any, cast

_DIGITS = 12


class Era:
    """The id of the server's run. Give `connected` to the client as its `redis_connect_func`."""

    def __init__(self) -> None:
        self._id = "none"

    def connected(self, connection: Any) -> None:
        """Set a new connection up, and learn from it which run this is."""
        connection.on_connect()
        connection.send_command("INFO", "server")
        for line in cast("bytes", connection.read_response()).decode().splitlines():
            if line.startswith("run_id:"):
                self._id = line.removeprefix("run_id:")[:_DIGITS]

    def __call__(self) -> str:
        """Return the id of the run, or `none` before the first connection."""
        return self._id
