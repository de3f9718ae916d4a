"""`arauto batch` against an API in this process, served over HTTP."""

import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from sqlalchemy.engine import Engine

from app.factory import create_app
from app.services.tokens import mint
from tests.batch_parts import add_users, batch, made, make_expander
from tests.integration.command_line import CommandLine


class _Silent(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        del args


@pytest.fixture
def arauto(make_settings, database_url, monkeypatch, capsys, tmp_path: Path) -> Iterator[CommandLine]:
    """The command line, pointed at an API of the test's own."""
    settings = make_settings(
        redis_url="redis://127.0.0.1:1/0", kafka_bootstrap_servers="127.0.0.1:1", log_level="ERROR"
    )
    server = make_server("127.0.0.1", 0, create_app(settings), handler_class=_Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    environment = {
        "API_URL": f"http://127.0.0.1:{server.server_port}",
        "ARAUTO_TOKEN": mint(settings, "demo", "tests"),
        "DATABASE_URL": database_url,
    }
    monkeypatch.chdir(tmp_path)
    try:
        yield CommandLine(monkeypatch, capsys, environment)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users.csv"
    rows = [f"u{n},+4477009{n:05d},Name {n}" for n in range(2000)]
    path.write_text("user_id,recipients.SMS,name\n" + "\n".join([*rows, "broken"]))
    return path


def test_a_file_is_sent_once_and_an_upload_goes_on_where_it_stopped(
    arauto: CommandLine, file: Path, engine: Engine, database_url: str, monkeypatch
):
    """Killed in the middle and run again, the command sends the rest; run a third time, it sends nothing."""
    monkeypatch.setattr("app.cli.batch_upload.PIECE_BYTES", 10_000)
    command = ("batch", "send", str(file), "--channel", "SMS", "--title", "t", "--body", "b", "--json")
    from app.cli import batch_upload

    send, sent = batch_upload._send, []

    def dies(api, path, piece, offset):
        if len(sent) == 2:
            raise KeyboardInterrupt
        sent.append(offset)
        return send(api, path, piece, offset)

    monkeypatch.setattr(batch_upload, "_send", dies)
    assert arauto(*command).code == 130
    monkeypatch.setattr(batch_upload, "_send", send)
    again = arauto(*command)
    assert (again.code, again.json["state"]) == (0, "ACCEPTED"), again.err
    assert again.json["upload"]["next_offset"] == file.stat().st_size
    identifier = again.json["id"]
    third = arauto(*command)
    assert third.json["id"] == identifier
    assert "--key" in third.err
    expander = make_expander(database_url)
    expander.run(30)
    expander.engine.dispose()
    assert len(made(engine, identifier)) == 2000
    shown = arauto("batch", "status", identifier)
    assert "COMPLETED" in shown.out
    assert "1 rejected" in shown.out
    errors = arauto("batch", "errors", identifier, "--csv")
    assert errors.out.splitlines()[1].startswith("2001,,columns,")


def test_a_segment_is_sent_paused_resumed_and_recalled(arauto: CommandLine, engine: Engine):
    """Each command says how the batch stands then."""
    add_users(engine, 10)
    sent = arauto(
        *("batch", "send", "--segment", '{"locales": ["pt"]}', "--channel", "sms"),
        *("--title", "t", "--body", "b", "--canary", "5%", "--json"),
    )
    assert sent.code == 0, sent.err
    assert sent.json["canary"]["percent"] == 5
    identifier = sent.json["id"]
    for verb, state in (("pause", "PAUSED"), ("resume", "ACCEPTED"), ("recall", "CANCELLED")):
        assert arauto("batch", verb, identifier, "--json").json["state"] == state
    refused = arauto("batch", "resume", identifier)
    assert (refused.code, "DOMAIN_BATCH_STATE" in refused.err) == (2, True)
    assert batch(engine, identifier)["reason"] == "recalled"


@pytest.mark.parametrize(
    ("arguments", "then"),
    [
        (["--title", "t", "--body", "b"], "name a file"),
        (["--segment", "[1]", "--title", "t", "--body", "b"], "as an object"),
        (["--segment", "{}"], "--template NAME"),
        (["--segment", "{}", "--body", "b", "--canary", "many"], "--canary 5%"),
    ],
)
def test_what_is_not_clear_is_asked_for(arauto: CommandLine, arguments: list[str], then: str):
    """Exit code 2, and what to do next."""
    ran = arauto("batch", "send", "--channel", "SMS", *arguments)
    assert ran.code == 2
    assert then in ran.err
