"""Importing a file of users through the API, batch by batch: what `arauto users import` does.

Memory holds one batch, whatever the size of the file. After each batch that the API stored, a checkpoint says how
many rows are done, so that a run that was stopped goes on behind them; a batch that was stored although its answer
got lost is stored again, which changes nothing.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from app.cli.client import Api
from app.cli.output import fail
from app.domain.user_files import Row, UserFile

_BATCH_LIMIT_BYTES = 2_000_000
_IDENTITY_BYTES = 1_048_576
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_WORTH_WAITING = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


@dataclass
class Progress:
    """How far an import has come; what the checkpoint holds."""

    identity: str
    rows: int = 0
    created: int = 0
    updated: int = 0
    rejected: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """The file beside the imported one that a stopped run leaves."""

    path: Path

    def read(self, identity: str) -> Progress | None:
        """Return where an earlier run stopped; None when none did; ends the command for another file."""
        try:
            found = Progress(**json.loads(self.path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            fail(f"not a checkpoint: {self.path}", "remove it, and import from the start")
        if found.identity != identity:
            fail(
                f"the checkpoint {self.path} is of another file, or of an earlier state of this one",
                "import from the start, without --resume: rows that are stored already do not change",
            )
        return found

    def write(self, progress: Progress) -> None:
        """Keep where the run is, whole or not at all."""
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.write_text(json.dumps(asdict(progress)))
        fresh.replace(self.path)

    def remove(self) -> None:
        """Forget it: the file is done."""
        self.path.unlink(missing_ok=True)


def identity_of(path: Path) -> str:
    """Return what tells a file from another: its size and its beginning."""
    with path.open("rb") as file:
        beginning = hashlib.sha256(file.read(_IDENTITY_BYTES)).hexdigest()
    return f"{path.stat().st_size}:{beginning}"


@dataclass
class Batch:
    """Rows that travel together, in the order of the file; no user is in it twice."""

    rows: list[Row] = field(default_factory=list)
    ids: set[str | None] = field(default_factory=set)
    bytes: int = 0

    def takes(self, row: Row, size: int, limit: int) -> bool:
        """Tell whether another row fits in."""
        return len(self.rows) < limit and self.bytes + size <= _BATCH_LIMIT_BYTES and row.id not in self.ids


def batches(rows: Iterator[Row], limit: int) -> Iterator[list[Row]]:
    """Yield the rows in batches of at most `limit`. A row without a user takes no room, but keeps its place."""
    batch = Batch()
    for row in rows:
        size = len(json.dumps(row.user)) if row.user is not None else 0
        if row.user is not None and not batch.takes(row, size, limit) and batch.rows:
            yield batch.rows
            batch = Batch()
        batch.rows.append(row)
        batch.bytes += size
        if row.user is not None:
            batch.ids.add(row.id)
    if batch.rows:
        yield batch.rows


class Upload:
    """Sends batches, waiting with patience for an API that is busy or away."""

    def __init__(
        self,
        api: Api,
        patience_seconds: float,
        say: Callable[[str], None],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._patience_seconds = patience_seconds
        self._say = say
        self._wait = wait

    def __call__(self, users: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what became of each user; ends the command when all is refused, or patience is over."""
        try:
            answer = self._patiently(users)
        except HTTPError as error:
            if error.code != HTTPStatus.REQUEST_ENTITY_TOO_LARGE or len(users) == 1:
                Api.give_up(error)
            error.close()
            half = len(users) // 2
            return [*self(users[:half]), *self(users[half:])]
        results: list[dict[str, Any]] = answer["results"]
        return results

    def _patiently(self, users: list[dict[str, Any]]) -> Any:
        until = time.monotonic() + self._patience_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._api.ask("POST", "/v1/users/bulk", {"users": users})[0]
            except HTTPError as error:
                seconds = _retry_after(error) or pause
                if error.code not in _WORTH_WAITING or time.monotonic() + seconds > until:
                    raise
                error.close()
                why = f"the API answered {error.code}"
            except (URLError, ConnectionError, TimeoutError):
                seconds, why = pause, "the API does not answer"
                if time.monotonic() + seconds > until:
                    fail(f"the API did not answer for {self._patience_seconds:.0f} s", "go on later with --resume")
            self._say(f"{why}; again in {seconds:.1f} s")
            self._wait(seconds)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _retry_after(error: HTTPError) -> float | None:
    with suppress(ValueError, TypeError):
        seconds = float(error.headers.get("Retry-After", ""))
        if 0 < seconds <= 3600:  # noqa: PLR2004  an hour; what asks for more is not believed
            return seconds
    return None


@dataclass(frozen=True)
class Import:
    """One run over a file. `store` says what becomes of the users of a batch, `reject` is told of bad rows."""

    source: UserFile
    store: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
    reject: Callable[[Row, str], None]
    done: Callable[[Progress], None]
    limit: int
    region: str = ""

    def run(self, progress: Progress) -> Progress:
        """Import what is behind `progress`; it is updated, and `done` told, after each batch."""
        rows = iter(self.source)
        for _ in range(progress.rows):
            next(rows, None)
        for batch in batches(rows, self.limit):
            self._batch(batch, progress)
            progress.rows += len(batch)
            self.done(progress)
        return progress

    def _batch(self, batch: list[Row], progress: Progress) -> None:
        sent = [row for row in batch if row.user is not None]
        results = self.store([self._user(row) for row in sent]) if sent else []
        outcomes = {id(row): result for row, result in zip(sent, results, strict=True)}
        for row in batch:
            result = outcomes.get(id(row))
            if result is None or result["status"] == "rejected":
                progress.rejected += 1
                self.reject(row, row.problem or _why(result or {}))
            elif result["status"] == "created":
                progress.created += 1
            else:
                progress.updated += 1

    def _user(self, row: Row) -> dict[str, Any]:
        user = dict(row.user or {})
        if self.region and user.get("phone") and "region" not in user:
            user["region"] = self.region
        return user


def _why(result: dict[str, Any]) -> str:
    error = result.get("error") or {}
    details = "; ".join(f"{each['field']}: {each['message']}" for each in error.get("details", []))
    return details or str(error.get("message", "rejected"))
