"""Sign-ins that failed, for the audit log: gathered by the minute and written behind the requests.

Whoever floods the API with bad credentials must not be able to fill a table. What fails in one minute for the
same reason, from the same network and with the same known key or subject is one entry with a count. A process
remembers a bounded number of such groups; all that come beyond it in that minute are one more, without a
network.

What a token says before it is proven, and the prefix of a key that does not exist, are not believed and not
stored. A process that is killed loses the entries of the last minute, and while the database does not take them
they wait.
"""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from multiprocessing.util import Finalize
from typing import NamedTuple

from app.domain import origins
from app.domain.audit import NO_ROLE, NO_TENANT, Entry
from app.observability.logging import get_logger
from app.services.refusal import Unauthenticated

Write = Callable[[Sequence[Entry]], None]

_MINUTE = 60
_GROUPS_A_MINUTE = 200
_LOOK_EVERY_SECONDS = 5.0
_UNKNOWN = "unknown"
_log = get_logger(__name__)


class _Group(NamedTuple):
    """What is counted together; `minute` is in minutes since the epoch."""

    minute: int
    tenant_id: str
    subject: str
    reason: str
    network: str | None


class SignInFailures:
    """The counts of one process. Its thread starts with the first failure."""

    def __init__(self, write: Write, clock: Callable[[], float] = time.time) -> None:
        self._write = write
        self._clock = clock
        self._counts: dict[_Group, int] = {}
        self._not_before = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, failure: Unauthenticated) -> None:
        """Count a failure of the request at hand. It never blocks for the database."""
        minute = int(self._clock()) // _MINUTE
        tenant, subject = failure.tenant_id or NO_TENANT, failure.subject or _UNKNOWN
        group = _Group(minute, tenant, subject, failure.code, origins.current().network)
        with self._lock:
            if group not in self._counts and len(self._counts) >= _GROUPS_A_MINUTE:
                group = _Group(minute, NO_TENANT, _UNKNOWN, failure.code, None)
            self._counts[group] = self._counts.get(group, 0) + 1
        if self._thread is None:
            self._start()

    def write_due(self) -> None:
        """Write the minutes that are over, but not within a minute of a try that failed."""
        if self._clock() < self._not_before:
            return
        minute = int(self._clock()) // _MINUTE
        self._send([group for group in list(self._counts) if group.minute < minute])

    def flush(self) -> None:
        """Write all that is left."""
        self._send(list(self._counts))

    def _send(self, groups: list[_Group]) -> None:
        if not groups:
            return
        with self._lock:
            taken = {group: self._counts.pop(group) for group in groups if group in self._counts}
        try:
            self._write([_entry(group, count) for group, count in taken.items()])
        except Exception as error:  # noqa: BLE001  whatever it is, it is tried again and no request depends on it
            with self._lock:
                for group, count in taken.items():
                    self._counts[group] = self._counts.get(group, 0) + count
            self._not_before = self._clock() + _MINUTE
            _log.info("sign_in_failures_not_written", groups=len(taken), reason=type(error).__name__)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                # The server's workers are children of multiprocessing, which runs these and no atexit handlers.
                Finalize(None, self.flush, exitpriority=10)
                self._thread = threading.Thread(target=self._run, name="sign-in-failures", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_LOOK_EVERY_SECONDS)
            self.write_due()


def _entry(group: _Group, count: int) -> Entry:
    return Entry(
        tenant_id=group.tenant_id,
        actor=group.subject,
        actor_role=NO_ROLE,
        action="sign_in.failed",
        resource_type="sign_in",
        resource_id=group.subject,
        changes={"reason": group.reason},
        network=group.network,
        at=datetime.fromtimestamp(group.minute * _MINUTE, UTC),
        count=count,
    )
