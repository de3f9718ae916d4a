"""`arauto reseal`: old keys are replaced value by value, beside traffic, and a lost key breaks nothing."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from app.db.sealed_values import SEALED_COLUMNS
from app.domain.ids import mint
from app.sealing import Vault, context, key_of
from app.services.reseal import Reseal
from app.settings import Settings
from tests.integration.command_line import CommandLine
from tests.integration.rows import put

OLD, NEW, LOST = (bytes([n]) * 32 for n in (1, 2, 3))
INDEX = b"i" * 32


def text(*keys: tuple[int, bytes]) -> str:
    return ",".join(f"{number}:{base64.b64encode(key).decode()}" for number, key in keys)


@pytest.fixture
def arauto(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command line with a new key before the old one."""
    settings = make_settings(redis_url="redis://127.0.0.1:1/0", kafka_bootstrap_servers="127.0.0.1:1")
    environment = {
        "DATABASE_URL": settings.database_url,
        "REDIS_URL": settings.redis_url,
        "ENCRYPTION_KEYS": text((2, NEW), (1, OLD)),
        "BLIND_INDEX_KEY": base64.b64encode(INDEX).decode(),
        "COLUMNS": "200",
    }
    return CommandLine(monkeypatch, capsys, environment)


def fill(engine: Engine, vault: Vault, count: int, first: int = 0) -> None:
    """Users with both addresses, a device, a suppressed address and a notification each, all sealed by `vault`."""
    for n in range(first, first + count):
        user, device = f"u{n}", str(mint()[0])
        notification, _ = put(engine, "SENT")
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "INSERT INTO app_user (tenant_id, id, email, email_index, phone, phone_index)"
                " VALUES ('demo', %s, %s, %s, %s, %s)",
                (
                    user,
                    vault.seal(context("email", "demo", user), b"a@example.com"),
                    b"i",
                    vault.seal(context("phone", "demo", user), b"+447700900000"),
                    b"i",
                ),
            )
            connection.exec_driver_sql(
                "INSERT INTO device (tenant_id, user_id, id, platform, token, token_index)"
                " VALUES ('demo', %s, %s, 'IOS', %s, %s)",
                (user, device, vault.seal(context("device", "demo", device), b"token"), user.encode()),
            )
            connection.exec_driver_sql(
                "INSERT INTO suppression (tenant_id, channel, address_index, id, reason, source, masked, address)"
                " VALUES ('demo', 'SMS', %s, %s, 'MANUAL', 'test', '***', %s)",
                (
                    user.encode(),
                    device,
                    vault.seal(context("suppression", "demo", "SMS", device), b"+447700900000"),
                ),
            )
            connection.exec_driver_sql(
                "INSERT INTO batch (tenant_id, id, state, source, upload_format, category, priority, channels,"
                " sealed, created_by)"
                " VALUES ('demo', %s, 'UPLOADING', 'UPLOAD', 'csv', 'news', 2, '{SMS}', %s, 'test')",
                (device, vault.seal(context("batch", "demo", device), b"{}")),
            )
            connection.exec_driver_sql(
                "INSERT INTO batch_piece (tenant_id, batch_id, start, length, sealed)"
                " VALUES ('demo', %s, 0, 1, %s)",
                (device, vault.seal(context("batch-piece", "demo", device, "0"), b"x")),
            )
            connection.exec_driver_sql(
                "UPDATE notification SET sealed = %s WHERE id = %s",
                (vault.seal(context("notification", "demo", str(notification)), b"{}"), str(notification)),
            )


def keys(engine: Engine) -> dict[str, set[int]]:
    found = {}
    with engine.begin() as connection:
        for column in SEALED_COLUMNS:
            values = connection.exec_driver_sql(f"SELECT {column.column} FROM {column.table}").scalars()
            found[column.name] = {key_of(bytes(value)) for value in values}
    return found


def test_everything_is_sealed_with_the_new_key_and_opens(engine: Engine) -> None:
    """Each value under its own context, in steps smaller than the table; a second run finds nothing.

    Fails when a column is missing from the list, or its context is another than the one it was sealed for.
    """
    fill(engine, Vault({1: OLD}, 1, INDEX), 7)
    vault = Vault({2: NEW, 1: OLD}, 2, INDEX)
    results = Reseal(engine, vault, step=3).run()
    assert {each.column: each.resealed for each in results} == {column.name: 7 for column in SEALED_COLUMNS}
    assert all(found == {2} for found in keys(engine).values())
    with engine.begin() as connection:
        for user, email, phone in connection.exec_driver_sql("SELECT id, email, phone FROM app_user"):
            assert vault.open(context("email", "demo", user), bytes(email)) == b"a@example.com"
            assert vault.open(context("phone", "demo", user), bytes(phone)) == b"+447700900000"
        for identifier, token in connection.exec_driver_sql("SELECT id::text, token FROM device"):
            assert vault.open(context("device", "demo", identifier), bytes(token)) == b"token"
        for identifier, address in connection.exec_driver_sql("SELECT id::text, address FROM suppression"):
            place = context("suppression", "demo", "SMS", identifier)
            assert vault.open(place, bytes(address)) == b"+447700900000"
        for identifier, sealed in connection.exec_driver_sql("SELECT id::text, sealed FROM notification"):
            assert vault.open(context("notification", "demo", identifier), bytes(sealed)) == b"{}"
        for identifier, sealed in connection.exec_driver_sql("SELECT id::text, sealed FROM batch"):
            assert vault.open(context("batch", "demo", identifier), bytes(sealed)) == b"{}"
        for identifier, sealed in connection.exec_driver_sql("SELECT batch_id::text, sealed FROM batch_piece"):
            assert vault.open(context("batch-piece", "demo", identifier, "0"), bytes(sealed)) == b"x"
    assert sum(each.resealed for each in Reseal(engine, vault).run()) == 0


def test_every_sealed_column_of_the_tables_is_on_the_list(engine: Engine) -> None:
    """A bytea that is no digest or index is sealed, and must be found when keys change."""
    with engine.begin() as connection:
        columns = connection.exec_driver_sql(
            "SELECT table_name || '.' || column_name FROM information_schema.columns"
            " WHERE data_type = 'bytea' AND table_schema = 'public' AND table_name !~ '_[0-9]{8}$'"
        ).scalars()
        others = {"api_key.digest", "idempotency_key.fingerprint", "template.digest", "template_version.digest"}
        others |= {"batch_piece.digest", "batch_seen.recipient"}
        sealed = {name for name in columns if not name.endswith("_index")} - others
    assert sealed == {column.name for column in SEALED_COLUMNS}


def test_a_value_that_changes_meanwhile_is_kept(engine: Engine) -> None:
    """Fails when a value is written without comparing it with the one that was read."""
    fill(engine, Vault({1: OLD}, 1, INDEX), 1)
    vault = Vault({2: NEW, 1: OLD}, 2, INDEX)
    fresh = vault.seal(context("email", "demo", "u0"), b"new@example.com")

    class Meddling(Vault):
        def open(self, place: bytes, sealed: bytes) -> bytes:
            plain = super().open(place, sealed)
            if plain == b"a@example.com":
                with engine.begin() as connection:
                    connection.exec_driver_sql("UPDATE app_user SET email = %s", (fresh,))
            return plain

    results = Reseal(engine, Meddling({2: NEW, 1: OLD}, 2, INDEX)).run()
    assert (results[0].resealed, results[0].changed_meanwhile) == (0, 1)
    with engine.begin() as connection:
        stored = connection.exec_driver_sql("SELECT email FROM app_user").scalar_one()
    assert bytes(stored) == fresh


def test_a_run_that_is_stopped_goes_on_where_it_was(engine: Engine) -> None:
    """What one run did is not done again by the next."""
    fill(engine, Vault({1: OLD}, 1, INDEX), 6)
    vault = Vault({2: NEW, 1: OLD}, 2, INDEX)

    class StopError(Exception):
        pass

    def stop(_column: str, _count: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        Reseal(engine, vault, step=2).run(stop)
    again = Reseal(engine, vault, step=2).run()
    assert [each.resealed for each in again] == [4, 6, 6, 6, 6, 6, 6]


def test_the_command_counts_reseals_and_reports(arauto: CommandLine, engine: Engine) -> None:
    """--check exits 1 while anything is of an older key, and 0 afterwards."""
    fill(engine, Vault({1: OLD}, 1, INDEX), 3)
    before = arauto("reseal", "--check", "--json")
    assert before.code == 1
    assert before.json["columns"][0] == {"column": "app_user.email", "by_key": {"1": 3}}
    ran = arauto("reseal")
    assert ran.code == 0
    assert "notification.sealed: 3 sealed anew with key 2" in ran.out
    assert arauto("reseal", "--check").code == 0
    assert "key 2: 3" in arauto("reseal", "--check").out


def test_a_key_that_is_lost_is_counted_and_breaks_nothing(arauto: CommandLine, engine: Engine) -> None:
    """Its values stay; those of the other keys are sealed anew; what is damaged counts too. Exit 1."""
    fill(engine, Vault({9: LOST}, 9, INDEX), 2)
    fill(engine, Vault({1: OLD}, 1, INDEX), 3, first=2)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE app_user SET phone = set_byte(phone, 30, get_byte(phone, 30) # 1) WHERE id = 'u4'"
        )
    ran = arauto("reseal", "--json")
    assert ran.code == 1
    found: dict[str, Any] = {each["column"]: each for each in json.loads(ran.out)["columns"]}
    assert (found["app_user.email"]["resealed"], found["app_user.email"]["lost"]) == (3, {"9": 2})
    assert found["app_user.phone"]["lost"] == {"1": 1, "9": 2}
    assert "put the keys that are missing back" in ran.err
    assert keys(engine)["app_user.email"] == {2, 9}
    again = arauto("reseal")
    assert again.code == 1
    assert "2 of key 9 do not open" in again.err
