"""`arauto users import`: files of users through a real API, rejected rows, patience, and going on after a stop."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from sqlalchemy.engine import Engine

from app.factory import create_app
from app.services.tokens import mint
from app.settings import Settings
from tests.integration.command_line import CommandLine, Ran

NOWHERE = {"redis_url": "redis://127.0.0.1:1/0", "kafka_bootstrap_servers": "127.0.0.1:1", "log_level": "ERROR"}
Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def serving(application: Wsgi) -> Iterator[str]:
    """The application behind a small server."""
    server = make_server("127.0.0.1", 0, application, handler_class=_Silent)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Busy:
    """Stands before the application and refuses some calls first, as one after the other of `refusals` says."""

    def __init__(self, application: Wsgi) -> None:
        self._application = application
        self.refusals: list[tuple[str, str] | None] = []
        self.calls = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.calls += 1
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is None:
            return self._application(environ, start_response)
        status, retry_after = refusal
        environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        start_response(status, [("Retry-After", retry_after), ("Content-Length", "0")])
        return [b""]


@pytest.fixture
def busy(make_settings: Callable[..., Settings]) -> Busy:
    """The API, which may be busy."""
    return Busy(create_app(make_settings(**NOWHERE)))


@pytest.fixture
def arauto(
    busy: Busy,
    make_settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[CommandLine]:
    """The command line, with the API's address and a token in its environment."""
    with serving(busy) as url:
        token = mint(make_settings(**NOWHERE), "demo", "tests")
        yield CommandLine(monkeypatch, capsys, {"API_URL": url, "ARAUTO_TOKEN": token, "COLUMNS": "200"})


def ids(engine: Engine) -> list[str]:
    with engine.begin() as connection:
        return list(connection.exec_driver_sql('SELECT id FROM app_user ORDER BY id COLLATE "C"').scalars())


def write(folder: Path, text: str | bytes, name: str = "users.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def counts(ran: Ran) -> tuple[int, int, int, int]:
    found = ran.json
    return found["rows"], found["created"], found["updated"], found["rejected"]


def test_a_file_is_stored_and_bad_rows_are_told_with_their_line(
    arauto: CommandLine, tmp_path: Path, engine: Engine
) -> None:
    """Exit 1 when any was rejected; a reason names the field and never what is in it. A second time, updates."""
    path = write(
        tmp_path,
        "id;email;phone;locale;attributes.plan\n"
        "ana;ana@example.com;+447700900000;pt-BR;pro\n"
        "bea;secret-at-nowhere;;;\n"
        "carl;;0209 22334455;;\n"
        "dora;;;;=1+1\n"
        "ana;;;;free\n",
    )
    ran = arauto("users", "import", str(path), "--region", "DE")
    assert ran.code == 1
    assert "5 rows: 3 created, 1 updated, 1 rejected." in ran.out
    assert "line 3: user 'bea': email: not an e-mail address" in ran.err
    assert "secret" not in ran.err
    assert ids(engine) == ["ana", "carl", "dora"]
    with engine.begin() as connection:
        stored = {
            row.id: row.attributes for row in connection.exec_driver_sql("SELECT id, attributes FROM app_user")
        }
    assert (stored["ana"], stored["dora"]) == ({"plan": "free"}, {"plan": "=1+1"})
    again = arauto("users", "import", str(path), "--region", "DE", "--json", "--rejects", str(tmp_path / "bad"))
    assert counts(again) == (5, 0, 4, 1)
    (line,) = (tmp_path / "bad").read_text().splitlines()
    assert json.loads(line) == {"line": 3, "id": "bea", "reason": "email: not an e-mail address"}
    assert again.err == ""


def test_objects_are_stored_and_null_clears(arauto: CommandLine, tmp_path: Path, engine: Engine) -> None:
    """With --batch 2, so that a user who is there twice is in two requests, in order."""
    rows = [{"id": "ana", "locale": "de"}, {"id": "bea"}, {"id": "ana", "locale": None, "time_zone": "Asia/Tokyo"}]
    text = "\n".join(map(json.dumps, rows)) + '\nnot json\n{"id": "x\\u0000"}\n{"id": "\\ud83d"}\n[]\n'
    ran = arauto("users", "import", str(write(tmp_path, text, "u.ndjson")), "--batch", "2", "--json")
    assert (ran.code, counts(ran)) == (1, (7, 2, 1, 4))
    with engine.begin() as connection:
        row = connection.exec_driver_sql("SELECT locale, time_zone FROM app_user WHERE id = 'ana'").one()
    assert tuple(row) == (None, "Asia/Tokyo")


def test_a_dry_run_checks_and_sends_nothing(
    arauto: CommandLine, busy: Busy, tmp_path: Path, engine: Engine
) -> None:
    """The same reasons as the API's."""
    path = write(tmp_path, "id,email,time_zone\nana,ana@example.com,\nbea,x,\ncarl,,Mars/Phobos\na/b,,\n")
    ran = arauto("users", "import", str(path), "--dry-run")
    assert ran.code == 1
    assert "4 rows: 1 can be stored, 3 cannot." in ran.out
    for line in (
        "line 3: user 'bea': email:",
        "line 4: user 'carl': time_zone: must be an IANA",
        "line 5: user 'a/b': id:",
    ):
        assert line in ran.err
    assert (busy.calls, ids(engine)) == (0, [])
    assert not list(tmp_path.glob("*.checkpoint"))


def test_a_busy_api_is_waited_for(
    arauto: CommandLine, busy: Busy, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as Retry-After says, else longer each time. Fails when the answer's own time is not looked at."""
    waits: list[float] = []
    monkeypatch.setattr("app.cli.users_import.Upload.__init__.__defaults__", (waits.append,))
    busy.refusals = [("429 Busy", "7"), ("503 Busy", "0"), ("503 Busy", "soon"), None, ("429 Busy", "2")]
    path = write(tmp_path, "id\n" + "".join(f"u{n}\n" for n in range(4)))
    ran = arauto("users", "import", str(path), "--batch", "2")
    assert (ran.code, ids(engine)) == (0, ["u0", "u1", "u2", "u3"])
    assert waits == [7, 1, 2, 2]
    assert "the API answered 429; again in 7.0 s" in ran.err


def test_a_run_that_was_stopped_goes_on_behind_what_is_stored(
    arauto: CommandLine, busy: Busy, tmp_path: Path, engine: Engine
) -> None:
    """The counts are of both runs; a checkpoint of another file is refused; at the end none is left.

    Fails when the checkpoint is written before the API answered.
    """
    path = write(tmp_path, "id,email\n" + "".join(f"u{n},\n" for n in range(5)) + "bad,x\n")
    busy.refusals = [None, ("503 Busy", "9")]
    stopped = arauto("users", "import", str(path), "--batch", "2", "--patience", "1")
    assert (stopped.code, ids(engine)) == (2, ["u0", "u1"])
    calls = busy.calls
    ran = arauto("users", "import", str(path), "--batch", "2", "--resume", "--json")
    assert (ran.code, counts(ran), ran.json["resumed_from"]) == (1, (6, 5, 0, 1), 2)
    assert busy.calls - calls == 2
    assert ids(engine) == ["u0", "u1", "u2", "u3", "u4"]
    assert not list(tmp_path.glob("*.checkpoint"))
    busy.refusals = [None, ("503 Busy", "9")]
    arauto("users", "import", str(path), "--batch", "2", "--patience", "1")
    write(tmp_path, "id\nother\n")
    refused = arauto("users", "import", str(path), "--resume")
    assert refused.code == 2
    assert "is of another file" in refused.err


def test_a_batch_that_is_too_large_travels_in_halves(
    make_settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    engine: Engine,
) -> None:
    """Whatever limit the API has."""
    settings = make_settings(**NOWHERE, api_bulk_max_body_bytes=5_000)
    path = write(tmp_path, "id,attributes.about\n" + "".join(f"u{n},{'x' * 1000}\n" for n in range(10)))
    with serving(create_app(settings)) as url:
        run = CommandLine(monkeypatch, capsys, {"API_URL": url, "ARAUTO_TOKEN": mint(settings, "demo", "t")})
        assert counts(run("users", "import", str(path), "--json")) == (10, 10, 0, 0)
    assert len(ids(engine)) == 10


@pytest.mark.parametrize(
    ("name", "raw", "options", "says"),
    [
        (
            "u.csv",
            b"id,email\n1,\xfc\n",
            (),
            "line 2 is not UTF-8, at byte 3 of the line\n  → save the file as UTF-8",
        ),
        ("u.csv", b"Nr\n1\n", (), "not fields of a user: 'Nr'\n  → map each with --map"),
        ("u.csv", b"", (), "the file is empty"),
        ("u.xlsx", b"id\n", (), "--format csv or --format ndjson"),
        ("u.csv", b"id\n", ("--map", "id"), "write --map COLUMN=FIELD"),
        ("u.csv", b"id\n", ("--delimiter", "ab"), "a delimiter is one character"),
    ],
)
def test_what_cannot_be_imported_says_what_to_do(
    arauto: CommandLine, tmp_path: Path, name: str, raw: bytes, options: tuple[str, ...], says: str
) -> None:
    """Exit 2, and nothing on stdout."""
    ran = arauto("users", "import", str(write(tmp_path, raw, name)), *options)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_a_missing_file_or_token_is_explained(arauto: CommandLine, tmp_path: Path) -> None:
    """A refusal of the whole batch ends the command with its advice."""
    assert "there is no file" in arauto("users", "import", str(tmp_path / "none.csv")).err
    ran = arauto("users", "import", str(write(tmp_path, "id\n1\n")), "--token", "ak_no")
    assert ran.code == 2
    assert "AUTH_KEY_INVALID (401)" in ran.err
