"""A relay in this process that parks what it publishes straight into a running worker: no Kafka, no Celery."""

import threading

from app.domain.kinds import Priority
from tests.pipeline_parts import RecordingOutlet, relay_on
from tests.worker_harness import Running


class Carried:
    """A relay of this process that parks what it publishes into a running worker."""

    def __init__(self, running: Running, database_url: str) -> None:
        self._running, self._url, self._end = running, database_url, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        outlet = RecordingOutlet()
        with relay_on(self._url, outlet) as relay:
            while not self._end.wait(0.02):
                for priority in Priority:
                    relay.run(priority)
                    for channel, ids in outlet.batches:
                        self._running.worker.park(priority, channel, ids, attempt=None, is_suspect=False)
                    outlet.batches.clear()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(20)
