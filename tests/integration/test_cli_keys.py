"""`arauto key`: from a key that an operator makes to the request that it opens, against a real database."""

import getpass
import time

import pytest
from flask import Flask

from app.cli import output
from app.factory import create_app
from app.settings import Settings
from tests.integration.command_line import CommandLine

NOWHERE = "01a22d60-47d0-79a7-9147-1bc22276754c"


@pytest.fixture
def arauto(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line on the test's own servers."""
    environment = {"DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url, "COLUMNS": "200"}
    return CommandLine(monkeypatch, capsys, environment)


@pytest.fixture
def app(settings: Settings) -> Flask:
    """The API on the same database."""
    return create_app(settings)


def status(app: Flask, key: str, path: str = f"/v1/notifications/{NOWHERE}") -> int:
    return app.test_client().get(path, headers={"Authorization": f"Bearer {key}"}).status_code


def test_a_key_for_a_person_is_the_key_alone_on_stdout(arauto: CommandLine, app: Flask) -> None:
    """A script can write KEY=$(arauto key create …); what it may do and that it is shown once goes to stderr."""
    ran = arauto("key", "create", "--name", "shop")
    assert ran.code == 0
    assert ran.out == ran.out.strip() + "\n"
    assert "shown once" in ran.err
    assert "until it is revoked" in ran.err
    assert status(app, ran.out.strip()) == 404
    assert status(app, ran.out.strip(), "/v1/api-keys") == 403


def test_a_key_is_listed_rotated_and_revoked(arauto: CommandLine, app: Flask) -> None:
    """By its id, and for its tenant only; the list knows prefixes and no key."""
    made = arauto(
        "key", "create", "--tenant", "ana", "--name", "shop", "--scope", "keys:manage", "--expires-in", "3600",
        "--json",
    ).json  # fmt: skip
    assert (made["scopes"], made["status"]) == (["keys:manage"], "ACTIVE")
    assert made["created_by"] == f"cli:{getpass.getuser()}"
    assert status(app, made["key"], "/v1/api-keys") == 200
    new = arauto("key", "rotate", made["id"], "--tenant", "ana", "--overlap-seconds", "60", "--json").json
    listed = arauto("key", "list", "--tenant", "ana", "--json").json["data"]
    assert [(one["id"], one["status"]) for one in listed] == [(new["id"], "ACTIVE"), (made["id"], "REPLACED")]
    shown = arauto("key", "list", "--tenant", "ana").out
    assert new["prefix"] in shown
    assert new["key"] not in shown
    assert "no API keys" in arauto("key", "list").out
    assert arauto("key", "revoke", new["id"], "--tenant", "ana", "--json").json["status"] == "REVOKED"
    assert "is revoked" in arauto("key", "revoke", new["id"], "--tenant", "ana").out
    assert status(app, new["key"], "/v1/api-keys") == 401


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "--name", "n", "--scope", "everything"), "→ choose from notifications:read"),
        (("create", "--name", " "), "→ give 1 to 64 visible characters"),
        (("create", "--name", "a\nb"), "→ give 1 to 64 visible characters"),
        (("create", "--name", "n", "--tenant", ""), "→ name it as its tokens do"),
        (("create", "--name", "n", "--expires-in", "999999999999"), "→ give a shorter --expires-in"),
        (("rotate", NOWHERE), "→ see which keys there are: arauto key list --tenant demo"),
        (("rotate", NOWHERE, "--overlap-seconds", "99999999"), "→ give a shorter --overlap-seconds"),
        (("rotate", "ak_0"), "→ copy it from arauto key list"),
        (("revoke", NOWHERE), "→ see which keys there are: arauto key list --tenant demo"),
    ],
)
def test_what_cannot_be_done_says_what_to_do(arauto: CommandLine, arguments: tuple[str, ...], says: str) -> None:
    """Exit 2, and nothing on stdout."""
    ran = arauto("key", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_a_database_that_is_away_is_explained(arauto: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every other command, though the pool of requests stands in between."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://arauto@127.0.0.1:1/arauto")
    began = time.monotonic()
    ran = arauto("key", "list")
    assert (ran.code, ran.out) == (output.IMPOSSIBLE, "")
    assert "arauto: PostgreSQL:" in ran.err
    assert "arauto doctor" in ran.err
    assert time.monotonic() - began < 10


def test_tokens_of_an_issuer_are_not_made_here(arauto: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands say where to get one instead of making one that the API refuses."""
    monkeypatch.setenv("JWT_ALGORITHM", "RS256")
    monkeypatch.setenv("JWT_JWKS_URL", "https://issuer.example/keys")
    ran = arauto("token")
    assert (ran.code, ran.out) == (2, "")
    assert "make an API key: arauto key create" in ran.err
    ran = arauto("send", "--in-app", "--data", "/nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert "--token or ARAUTO_TOKEN" in ran.err


def test_a_token_can_carry_a_role(arauto: CommandLine, app: Flask) -> None:
    """A person's token for trying out what a person may."""
    made = arauto("token", "--subject", "ana", "--role", "USER", "--json").json
    assert made["role"] == "USER"
    assert status(app, made["token"]) == 404
    assert status(app, made["token"], "/v1/api-keys") == 403
