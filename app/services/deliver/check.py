"""The last look before a send: what was decided at the accept may be hours old, and people change their minds.

By the same rules as `app.services.accept.plan`, on what is stored now: status, preferences, muted devices, quiet
hours, and, once the address is known, the suppression list. What is not wanted any more is called off, what is due
at night is held. HIGH and mandatory messages keep no quiet hours.

A message that passes may still wait for its turn; so it also gets the moment at which quiet hours begin, and no
call of it starts after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf

from app.db import suppressions
from app.db.deliveries import Loaded
from app.db.steady import SteadyConnections
from app.domain.kinds import Channel, Priority
from app.domain.preferences import quiet_window, resolve, wish_of
from app.domain.quiet_hours import quiet_within, release_at, share, spread_until
from app.domain.users import UserStatus
from app.domain.zones import zone_or
from app.sealing import Vault
from app.services.accept.plan import ADDRESS_SUPPRESSED, NOT_SENT_TO, PREFERENCE_OFF
from app.services.deliver.policies import PolicyBook, Said
from app.services.recipients import INDEX_KINDS

DEVICE_MUTED = "device_muted"
CHANGES = frozenset({*NOT_SENT_TO.values(), PREFERENCE_OFF, ADDRESS_SUPPRESSED, DEVICE_MUTED})
"""The error codes of deliveries that were called off by this look."""


@dataclass(slots=True)
class Sorted:
    """What a batch came to: rows to send, with the seconds until they may not any more; to hold; to call off."""

    go: list[tuple[Loaded, float]] = field(default_factory=list)
    held: list[tuple[str, int, float]] = field(default_factory=list)
    withheld: list[tuple[str, int, str]] = field(default_factory=list)


class Check:
    """The look. `waiting_seconds` is the longest that a message which passed may wait for its call."""

    def __init__(
        self, policies: PolicyBook, vault: Vault, *, spread_seconds: float, waiting_seconds: float
    ) -> None:
        self._policies = policies
        self._vault = vault
        self._spread_seconds = spread_seconds
        self._waiting_seconds = waiting_seconds

    def sort(self, rows: Sequence[Loaded]) -> Sorted:
        """Decide about due rows. Raises SQLAlchemyError when the database did not answer."""
        done = Sorted()
        said = self._policies.of({row.tenant_id for row in rows})
        for row in rows:
            code = _change_of_mind(row, said[row.tenant_id])
            if code is not None:
                done.withheld.append((row.id, row.attempts, code))
                continue
            wait, left = self._quiet(row, said[row.tenant_id])
            if wait is not None:
                done.held.append((row.id, row.attempts, wait))
            else:
                done.go.append((row, left))
        return done

    def suppressed(self, reads: SteadyConnections, rows: Sequence[tuple[Loaded, str]]) -> set[str]:
        """Return the ids of those rows whose address, given in the clear, is on the suppression list.

        Asks nothing where the tenant suppresses no address of the channel at all.
        """
        asked = [pair for pair in rows if pair[0].has_suppressions]
        if not asked:
            return set()
        keys = [
            (row.tenant_id, row.channel, self._vault.index(row.tenant_id, INDEX_KINDS[row.channel], address))
            for row, address in asked
        ]
        return {asked[position][0].id for position in reads.run(suppressions.hits, keys)}

    def _quiet(self, row: Loaded, said: Said) -> tuple[float | None, float]:
        """Return for how many seconds a row is held, or None; and in how many quiet hours begin, if soon."""
        wish = wish_of(row.quiet_hours)
        category = said.category(row.category)
        quiet = quiet_window(wish, category, said.tenant, Channel(row.channel), Priority(row.priority))
        if quiet.window is None:
            return None, inf
        now = datetime.fromtimestamp(row.now, UTC)
        zone = zone_or(iter((row.device_zone, row.user_zone, said.tenant.time_zone)))
        until = release_at(now, quiet.window, zone)
        if until is None:
            left = quiet_within(now, self._waiting_seconds, quiet.window, zone)
            return None, inf if left is None else left
        spread = spread_until(until, share(row.id) * self._spread_seconds, quiet.window, zone)
        # The database's clock decides when it is due: a moment more, so that no look comes too early.
        return (spread - now + timedelta(milliseconds=1)).total_seconds(), inf


def _change_of_mind(row: Loaded, said: Said) -> str | None:
    """Return why a row is not to be sent any more, or None."""
    if row.user_status in _BLOCKED:
        return _BLOCKED[row.user_status]
    if row.device_is_muted:
        return DEVICE_MUTED
    wanted = resolve(row.choices or {}, said.category(row.category), said.tenant, Channel(row.channel))
    return None if wanted.allowed else PREFERENCE_OFF


_BLOCKED: dict[str | None, str] = {status.value: code for status, code in NOT_SENT_TO.items()}
assert UserStatus.ACTIVE.value not in _BLOCKED
