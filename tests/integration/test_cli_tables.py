"""`arauto migrate`, `ledger`, `replay`, `token` and the help, against a real database."""

import uuid
from collections.abc import Callable

import jwt
import pytest
import typer.main
from sqlalchemy.engine import Engine

from app.cli import app
from app.db.session import make_engine
from app.settings import DEVELOPMENT_SECRET, Settings
from tests.integration.command_line import CommandLine
from tests.integration.rows import put


@pytest.fixture
def arauto(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line on the test's own servers."""
    environment = {
        "DATABASE_URL": settings.database_url,
        "REDIS_URL": settings.redis_url,
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "COLUMNS": "200",
    }
    return CommandLine(monkeypatch, capsys, environment)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line without any server."""
    return CommandLine(monkeypatch, capsys, {"COLUMNS": "200"})


def commands() -> list[tuple[str, ...]]:
    group = typer.main.get_command(app)
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        children = getattr(command, "commands", None)
        found += [(name, child) for child in children] if children else [(name,)]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(bare: CommandLine, command: tuple[str, ...]) -> None:
    """An operator at night reads the example first; `--json` is there wherever there is an answer."""
    ran = bare(*command, "--help")
    assert ran.code == 0
    assert f"Example: arauto {' '.join(command)}" in ran.out
    if command[0] not in {"up", "api", "bridge", "stream"}:
        assert "--json" in ran.out


def test_a_token_is_all_that_is_printed_and_the_api_can_read_it(bare: CommandLine) -> None:
    """A script can write TOKEN=$(arauto token …)."""
    ran = bare(
        "token", "--tenant", "ana", "--subject", "shop", "--scope", "notifications:write", "--expires-in", "60"
    )
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out == ran.out.strip() + "\n"
    claims = jwt.decode(ran.out.strip(), DEVELOPMENT_SECRET, algorithms=["HS256"])
    assert (claims["tenant"], claims["sub"], claims["scope"]) == ("ana", "shop", "notifications:write")
    assert claims["exp"] - claims["iat"] == 60


def test_a_token_that_the_api_would_refuse_is_not_made(bare: CommandLine) -> None:
    """The error says what to do next, and stdout stays empty."""
    ran = bare("token", "--expires-in", "999999999")
    assert ran.code == 2
    assert ran.out == ""
    assert "→ give a shorter --expires-in" in ran.err


def test_migrate_goes_up_twice_and_down(
    arauto: CommandLine, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up makes tables and a week of partitions; again changes nothing; down leaves no table."""
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    first, second = (arauto("migrate", "--json") for _ in range(2))
    assert (first.code, second.code) == (0, 0)
    assert first.json["partitions_made"] > 0
    assert second.json == {"revision": first.json["revision"], "partitions_made": 0}
    down = arauto("migrate", "--down", "base", "--yes")
    assert "revision base" in down.out
    engine = make_engine(empty_database_url, application_name="test")
    with engine.connect() as connection:
        left = connection.exec_driver_sql("SELECT relname FROM pg_class WHERE relname = 'delivery'").all()
    engine.dispose()
    assert left == []


def test_a_missing_table_is_explained(
    arauto: CommandLine, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thing that everybody forgets."""
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    ran = arauto("ledger")
    assert ran.code == 2
    assert "run `arauto migrate`" in ran.err
    assert "Traceback" not in ran.err


def test_a_server_that_is_not_there_is_explained_without_its_password(
    arauto: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be reached, and what to do next; never the password of the address."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://arauto:hunter2@127.0.0.1:1/none")
    ran = arauto("ledger")
    assert ran.code == 2
    assert "PostgreSQL" in ran.err
    assert "arauto doctor" in ran.err
    assert "hunter2" not in ran.err


def test_a_setting_that_is_not_right_is_explained(arauto: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, in the form in which it is set."""
    monkeypatch.setenv("RETRY_ATTEMPTS", "many")
    ran = arauto("ledger")
    assert ran.code == 2
    assert "RETRY_ATTEMPTS" in ran.err


def test_a_clean_ledger_exits_0(arauto: CommandLine, engine: Engine) -> None:
    """For people and for scripts."""
    put(engine, "SENT", "FAILED", attempts=1)
    ran = arauto("ledger")
    assert ran.code == 0
    assert "Accepted 2 deliveries: FAILED 1, SENT 1." in ran.out
    assert "Everything is accounted for." in ran.out
    answer = arauto("ledger", "--json").json
    assert answer["clean"] is True
    assert answer["lines"][0]["states"] == {"FAILED": 1, "SENT": 1}


def test_a_ledger_that_differs_exits_1_with_the_ids(arauto: CommandLine, engine: Engine) -> None:
    """Invariant 1. The id that is missing its delivery is named, in the table and in JSON."""
    lost, _ = put(engine, "SENT", promised=2)
    ran = arauto("ledger", "--since", "24h")
    assert ran.code == 1
    assert str(lost) in ran.out
    assert "NOT accounted for" in ran.out
    answer = arauto("ledger", "--json", "--tenant", "demo")
    assert answer.code == 1
    assert [finding["id"] for finding in answer.json["findings"]] == [str(lost)]
    assert arauto("ledger", "--tenant", "other").code == 0


@pytest.mark.parametrize("since", ["yesterday", "24", "2026-11-30T08:00:00"])
def test_a_time_that_cannot_be_read_is_refused(arauto: CommandLine, since: str) -> None:
    """Never a guess: an instant without offset would be read in somebody's zone."""
    ran = arauto("ledger", "--since", since)
    assert ran.code == 2
    assert "→" in ran.err


def test_a_failed_delivery_is_replayed_by_id(arauto: CommandLine, engine: Engine) -> None:
    """It is PENDING and due, with fresh attempts on top of those that it had; attempts stay counted."""
    _, (failed, sent) = put(engine, "FAILED", "SENT", attempts=6, cancel_requested_at="now()", rescues=6)
    missing = str(uuid.uuid4())
    ran = arauto("replay", str(failed), str(sent), missing, "--json")
    assert ran.code == 1
    assert ran.json["replayed"] == [str(failed)]
    assert ran.json["refused"] == {str(sent): "is SENT", missing: "does not exist"}
    with engine.connect() as connection:
        row = connection.exec_driver_sql(
            "SELECT status, attempts, attempts_allowed, rescues, cancel_requested_at, relay_at <= now()"
            " FROM delivery WHERE id = %s",
            (str(failed),),
        ).one()
    assert tuple(row) == ("PENDING", 6, 12, 0, None, True)
    assert arauto("ledger").code == 0


def test_failures_are_replayed_by_their_code(arauto: CommandLine, engine: Engine) -> None:
    """All with that code and not expired, of that tenant; others stay."""
    chosen = [put(engine, "FAILED", error_code="'misconfigured'")[1][0] for _ in range(3)]
    put(engine, "FAILED", error_code="'misconfigured'", expires_at="now() - interval '1 s'")
    put(engine, "FAILED", error_code="'misconfigured'", tenant="ana")
    put(engine, "FAILED", error_code="'rejected'")
    ran = arauto("replay", "--error-code", "misconfigured", "--tenant", "demo", "--yes", "--json")
    assert ran.code == 0
    assert sorted(ran.json["replayed"]) == sorted(map(str, chosen))
    assert ran.json["refused"] == {}


def test_replay_needs_to_know_what(arauto: CommandLine) -> None:
    """Neither nothing nor both."""
    assert arauto("replay").code == 2
    assert arauto("replay", "not-an-id").code == 2


def test_an_expired_delivery_is_not_replayed(
    arauto: CommandLine, make_settings: Callable[..., Settings], engine: Engine
) -> None:
    """Invariant 9. Past `expires_at` no call starts, whoever asks for it."""
    _, (failed,) = put(engine, "FAILED", expires_at="now() - interval '1 s'")
    ran = arauto("replay", str(failed))
    assert ran.code == 1
    assert "expired" in ran.out
