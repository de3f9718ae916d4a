"""`arauto template`: from files to a running API."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from app.factory import create_app
from app.settings import Settings
from tests.integration.command_line import CommandLine

GREETING = {
    "category": "hello",
    "default_locale": "en",
    "variables": [{"name": "name"}],
    "bodies": {"en": {"SMS": {"text": "Hi {{ name }}"}}},
}


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the base class's
        """Say nothing."""


@pytest.fixture
def arauto(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """The command line, with an API over HTTP on the test's own database."""
    server = make_server("127.0.0.1", 0, create_app(settings), handler_class=_Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    yield CommandLine(monkeypatch, capsys, {"DATABASE_URL": settings.database_url, "API_URL": address})
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


def test_a_folder_is_pushed_and_pushed_again(arauto: CommandLine, tmp_path: Path) -> None:
    """Each file is a template of its name; what has not changed keeps its version."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(GREETING))
    for _ in range(2):
        ran = arauto("template", "push", str(tmp_path), "--json")
        assert (ran.code, ran.json) == (0, [{"name": "one", "version": 1}, {"name": "two", "version": 1}])
    (tmp_path / "two.json").write_text(json.dumps(GREETING | {"variables": [{"name": "name", "type": "string"}]}))
    assert arauto("template", "push", str(tmp_path)).out == "one: version 1\ntwo: version 2\n"


def test_a_file_is_shown_without_being_kept(arauto: CommandLine, tmp_path: Path) -> None:
    """Exit 1 says that there is something to think about."""
    file = tmp_path / "hello.json"
    file.write_text(json.dumps(GREETING))
    fine = arauto("template", "preview", str(file), "--payload", '{"name": "Ana"}')
    assert fine.code == 0
    assert "Hi Ana" in fine.out
    missing = arauto("template", "preview", str(file), "--locale", "pt-BR", "--json")
    assert missing.code == 1
    assert {each["code"] for each in missing.json["warnings"]} == {"VARIABLE_MISSING", "LOCALE_FALLBACK"}


def test_what_is_wrong_is_said_with_what_to_do(arauto: CommandLine, tmp_path: Path) -> None:
    """No file, no JSON, no template: exit 2, a sentence and an advice."""
    file = tmp_path / "bad.json"
    for text, word in (("{", "not JSON"), ("[]", "not a JSON object"), ("{}", "VALIDATION_BODY"),
                       (json.dumps(GREETING | {"variables": []}), "line 1: the variable 'name'")):  # fmt: skip
        file.write_text(text)
        ran = arauto("template", "push", str(file))
        assert ran.code == 2
        assert word in ran.err
        assert "→" in ran.err
    assert arauto("template", "push", str(tmp_path / "none.json")).code == 2
    (tmp_path / "empty").mkdir()
    assert "no templates" in arauto("template", "push", str(tmp_path / "empty")).err
