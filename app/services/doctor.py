"""The doctor: looks at everything that the delivery protocol relies on, and says what to do about what is not so.

A probe is asked for its findings and may fail in any way; whatever it raises becomes a finding, for a doctor that
dies of the patient is no use. `FAIL` means that deliveries are, or soon will be, lost, late or refused; `WARN`
that something is not as it should be while the pipeline still runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from sqlalchemy.engine import Connection, Engine

from app.db import partitions, schema, status
from app.observability.redaction import mask_text

_OLDEST_VERSION = 160_000
_CLOCK_WARN_SECONDS = 5.0
_TRANSACTION_WARN_SECONDS = 60.0
_TRANSACTION_FAIL_SECONDS = 600.0
_DEAD_ROWS_WARN = 200_000
_CONNECTIONS_WARN = 0.9


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `then` says what to do next; empty when all is well."""

    part: str
    level: Level
    detail: str
    then: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """Something to look at. `then` is the advice when looking itself fails."""

    part: str
    look: Callable[[], Iterable[Finding]]
    then: str


def examine(probes: Iterable[Probe], progress: Callable[[str], None] = lambda _part: None) -> list[Finding]:
    """Ask every probe and return all findings; `progress` gets the part that is looked at now."""
    findings: list[Finding] = []
    for probe in probes:
        progress(probe.part)
        try:
            findings.extend(probe.look())
        except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
            line = (str(error).strip().splitlines() or [""])[0]
            findings.append(
                Finding(probe.part, Level.FAIL, mask_text(f"{type(error).__name__}: {line}"), probe.then)
            )
    return findings


@dataclass(frozen=True)
class DatabaseProbe:
    """Looks at PostgreSQL: version, clock, revision, partitions, and what holds back its vacuum."""

    engine: Engine
    url: str
    retention_days: int
    ahead_days: int

    def look(self) -> list[Finding]:
        """Return the findings; raises what the driver raises when the server cannot be reached."""
        with self.engine.connect() as connection:
            server = status.server(connection)
            findings = [self._version(server), self._clock(server), self._connections(server)]
            revision = schema.current(connection)
            newest = schema.newest(self.url)
            if revision != newest:
                detail = f"revision {revision or 'none'}, this version needs {newest}"
                return [*findings, Finding("migrations", Level.FAIL, detail, "run `arauto migrate`")]
            findings.append(Finding("migrations", Level.OK, f"revision {revision}, the newest"))
            findings.extend(self._partitions(connection))
            findings.append(self._oldest_transaction(connection))
            findings.append(self._dead_rows(connection))
        return findings

    @staticmethod
    def _version(server: status.Server) -> Finding:
        if server.version_number < _OLDEST_VERSION:
            return Finding(
                "postgresql", Level.FAIL, f"version {server.version}", "upgrade to PostgreSQL 16 or newer"
            )
        return Finding("postgresql", Level.OK, f"version {server.version}")

    @staticmethod
    def _clock(server: status.Server) -> Finding:
        off = abs((datetime.now(UTC) - server.now).total_seconds())
        if off > _CLOCK_WARN_SECONDS:
            return Finding(
                "clock",
                Level.WARN,
                f"this machine and the database differ by {off:.1f} s",
                "let both follow a time server; due times are the database's, ids carry the API's clock",
            )
        return Finding("clock", Level.OK, f"{off:.2f} s from the database's")

    @staticmethod
    def _connections(server: status.Server) -> Finding:
        detail = f"{server.connections} of {server.max_connections} connections"
        if server.connections > _CONNECTIONS_WARN * server.max_connections:
            then = "raise max_connections, or lower API_DATABASE_POOL or the number of workers"
            return Finding("connections", Level.WARN, detail, then)
        return Finding("connections", Level.OK, detail)

    def _partitions(self, connection: Connection) -> list[Finding]:
        today = partitions.today(connection)
        attached = partitions.attached(connection)
        ahead = -1
        while all(
            partitions.Partition(table, today + timedelta(days=ahead + 1)) in attached
            for table in partitions.TABLES
        ):
            ahead += 1
        then = "run `arauto migrate`, and see that beat and the relay worker run: they make them daily"
        if ahead < 1:
            missing = "today" if ahead < 0 else "tomorrow"
            findings = [Finding("partitions", Level.FAIL, f"none for {missing}: accepting will fail", then)]
        elif ahead < self.ahead_days - 1:
            findings = [Finding("partitions", Level.WARN, f"only {ahead} days ahead", then)]
        else:
            findings = [Finding("partitions", Level.OK, f"{ahead} days ahead")]
        old = sorted({one.day for one in attached if one.day < today - timedelta(days=self.retention_days + 1)})
        if old:
            findings.append(
                Finding(
                    "retention",
                    Level.WARN,
                    f"{len(old)} days are older than RETENTION_DAYS, the oldest is {old[0]}",
                    "rows of them are still in flight (`arauto status`), or upkeep does not run",
                )
            )
        return findings

    @staticmethod
    def _oldest_transaction(connection: Connection) -> Finding:
        oldest = status.oldest_transaction(connection)
        if oldest is None or oldest[3] < _TRANSACTION_WARN_SECONDS:
            return Finding("transactions", Level.OK, "none is older than a minute")
        pid, application, state, age = oldest
        return Finding(
            "transactions",
            Level.FAIL if age > _TRANSACTION_FAIL_SECONDS else Level.WARN,
            f"backend {pid} ({application or 'unnamed'}, {state}) holds a snapshot for {age:.0f} s: "
            "vacuum cannot clean, and claims slow down",
            f"end it: SELECT pg_terminate_backend({pid})",
        )

    @staticmethod
    def _dead_rows(connection: Connection) -> Finding:
        worst = status.dead_rows(connection)
        if worst is None:
            return Finding("vacuum", Level.OK, "no rows yet")
        table, live, dead = worst
        if dead > max(_DEAD_ROWS_WARN, live):
            then = f"look for an old transaction first, then VACUUM {table}"
            return Finding("vacuum", Level.WARN, f"{table} holds {dead} dead rows beside {live} live", then)
        return Finding("vacuum", Level.OK, f"at most {dead} dead rows in a table")
