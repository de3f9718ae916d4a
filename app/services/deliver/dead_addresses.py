"""Addresses that a provider called dead, or whose reader opted out there, go onto the suppression list.

Off the way of the outcomes: a thread of its own writes them, in batches, when there are any. One that is lost with
its process costs one more call, which is refused in the same way.
"""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Event, Thread

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app.db import suppressions
from app.db.steady import SteadyConnections
from app.db.suppressions import Suppression
from app.domain.kinds import Channel
from app.observability.logging import get_logger
from app.sealing import Vault
from app.services.suppressions import Reason, suppression
from providers.outcome import Outcome, Rejected

log = get_logger(__name__)

_BATCH = 100
_WAITING_LIMIT = 10_000
_PAUSE_SECONDS = 1.0
_OPTED_OUT = frozenset({"recipient_opted_out"})

Entry = tuple[str, Channel, str, Reason, str]
"""Tenant, channel, address, reason, and the provider that said so."""


def reason_of(outcome: Outcome) -> Reason | None:
    """Return why nothing should be sent to the address of a call any more, or None."""
    if not isinstance(outcome, Rejected):
        return None
    if outcome.code in _OPTED_OUT:
        return Reason.OPT_OUT
    return Reason.BOUNCE if outcome.recipient_gone else None


class DeadAddresses:
    """Takes addresses and writes them down. `note` never blocks; the thread starts with the first one."""

    def __init__(self, database: SteadyConnections, vault: Vault) -> None:
        self._database = database
        self._vault = vault
        self._waiting: deque[Entry] = deque(maxlen=_WAITING_LIMIT)
        self._changed = Condition()
        self._stopping = Event()
        self._thread: Thread | None = None

    def note(self, entries: Sequence[Entry]) -> None:
        """Take addresses that are dead."""
        with self._changed:
            self._waiting.extend(entries)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="dead-addresses", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self, wait_seconds: float) -> None:
        """Write what waits, for `wait_seconds` at most."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(wait_seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            if not batch:
                return
            self._survive(lambda batch=batch: self._write(batch), batch)  # type: ignore[misc]

    def _survive(self, step: Callable[[], None], batch: list[Entry]) -> None:
        """Do one step; again later if the database was away. A fault of ours loses a batch, not the thread."""
        try:
            step()
        except SQLAlchemyError as error:
            log.warning("suppressions_wait_for_database", count=len(batch), error=type(error).__name__)
            is_lost = isinstance(error, DBAPIError) and not error.connection_invalidated
            if not self._stopping.is_set() and not is_lost:
                with self._changed:
                    self._waiting.extendleft(reversed(batch))
                self._stopping.wait(_PAUSE_SECONDS)
        except Exception:
            log.exception("suppressions_lost", count=len(batch))

    def _write(self, batch: Sequence[Entry]) -> None:
        made: dict[tuple[str, str, bytes], Suppression] = {}
        for tenant_id, channel, address, reason, provider in batch:
            one = suppression(self._vault, tenant_id, channel, address, reason, source=f"provider:{provider}")
            made.setdefault((one.tenant_id, one.channel, one.address_index), one)
        self._database.run(suppressions.suppress, list(made.values()))
        log.info("addresses_suppressed", count=len(made))
