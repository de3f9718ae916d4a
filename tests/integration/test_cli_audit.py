"""`arauto audit` and `arauto errors`: what operators did is in the log under their account."""

import getpass
import json

import pytest
from sqlalchemy.engine import Engine

from app.domain.error_codes import CATALOGUE
from app.services.replay import Replay
from app.settings import Settings
from app.wiring import api_services
from tests.integration.command_line import CommandLine

ACTOR = f"cli:{getpass.getuser()}"


@pytest.fixture
def arauto(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line on the test's own servers."""
    environment = {"DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url, "COLUMNS": "250"}
    return CommandLine(monkeypatch, capsys, environment)


def test_what_an_operator_does_to_keys_is_in_the_log(arauto: CommandLine) -> None:
    """Under the account of the operating system, in a role that no token can have."""
    made = arauto("key", "create", "--tenant", "ana", "--name", "shop", "--json").json
    arauto("key", "rotate", made["id"], "--tenant", "ana", "--json")
    arauto("key", "revoke", made["id"], "--tenant", "ana", "--json")
    found = arauto("audit", "--tenant", "ana", "--json").json["data"]
    assert [(e["action"], e["actor"], e["actor_role"], e["address"]) for e in found] == [
        (action, ACTOR, "OPERATOR", None) for action in ("api_key.revoked", "api_key.rotated", "api_key.created")
    ]
    shown = arauto("audit", "--tenant", "ana", "--action", "api_key.created")
    assert (shown.code, shown.out.count(made["id"])) == (0, 1)
    assert made["prefix"] in shown.out
    assert made["key"] not in shown.out
    assert arauto("audit", "--tenant", "bea", "--json").json == {"data": []}
    assert "No entries of tenant bea" in arauto("audit", "--tenant", "bea").out
    assert len(arauto("audit", "--tenant", "ana", "--limit", "2", "--json").json["data"]) == 2
    assert len(arauto("audit", "--tenant", "ana", "--resource", made["id"], "--json").json["data"]) == 3
    assert arauto("audit", "--since", "soon").code == 2


def test_a_replay_leaves_an_entry_for_each_tenant(arauto: CommandLine, engine: Engine, settings: Settings) -> None:
    """With how many and which; in the transaction that made them PENDING."""
    insert = """
        INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority, status, error_code)
        SELECT (%(head)s || lpad(n::text, 12, '0'))::uuid, (%(head)s || lpad(n::text, 12, '0'))::uuid,
               CASE WHEN n %% 3 = 0 THEN 'bea' ELSE 'ana' END, 'u', 'SMS', 1, 'FAILED', 'rejected'
        FROM generate_series(1, 9) AS n"""
    with engine.begin() as connection:
        now = connection.exec_driver_sql("SELECT (extract(epoch FROM now()) * 1000)::bigint").scalar_one()
        connection.exec_driver_sql(insert, {"head": f"{now:012x}"[:8] + "-" + f"{now:012x}"[8:] + "-7000-8000-"})
    replay = Replay(engine, 6, forget_crashes=lambda _: None, nudge=lambda _: None)
    assert len(replay.by_error_code("rejected").replayed) == 9
    for tenant, count in (("ana", 6), ("bea", 3)):
        (entry,) = arauto("audit", "--tenant", tenant, "--json").json["data"]
        assert (entry["action"], entry["actor"]) == ("delivery.replayed", ACTOR)
        assert (entry["changes"]["count"], entry["changes"]["error_code"]) == (count, "rejected")


def test_sign_ins_that_failed_without_a_tenant_are_the_operators(arauto: CommandLine, settings: Settings) -> None:
    """No tenant sees them, since nobody knows whose they are."""
    from app.factory import create_app

    app = create_app(settings)
    for _ in range(3):
        app.test_client().get("/v1/audit", headers={"Authorization": "Bearer nonsense"})
    api_services(settings).sign_in_failures.flush()
    (entry,) = arauto("audit", "--json").json["data"]
    assert (entry["action"], entry["count"], entry["actor_role"]) == ("sign_in.failed", 3, "NONE")
    assert "where no tenant was known" in arauto("audit").out


def test_error_codes_are_explained(arauto: CommandLine) -> None:
    """All of them for a script, one for a person, and what to do about a code that is none."""
    assert {each["code"] for each in arauto("errors", "--json").json} == set(CATALOGUE)
    assert json.loads(arauto("errors", "AUTH_KEY_REVOKED", "--json").out)[0]["status"] == 401
    assert "→" in arauto("errors", "AUTH_KEY_REVOKED").out
    ran = arauto("errors", "AUTH_KEY_STOLEN")
    assert (ran.code, ran.out) == (2, "")
    assert "→ see them all: arauto errors" in ran.err
    assert arauto("errors", "--into", "/nowhere/errors.md").code == 2
