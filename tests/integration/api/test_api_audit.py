"""The audit log: what leaves an entry, with whom and from where; who may read it; that nobody can change it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg2
import pytest
from sqlalchemy.engine import Engine, Row
from sqlalchemy.exc import ProgrammingError

from app.db.tenancy import run_as_tenant
from app.domain.callers import Role
from app.wiring import api_services
from tests.integration.api.conftest import PATH, Api, error_of, sms

Rows = Callable[..., list[Row[Any]]]

AUDIT = "/v1/audit"
KEYS = "/v1/api-keys"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


def admin(api: Api, tenant: str = "demo") -> dict[str, str]:
    return api.bearer(tenant, scope="", role=Role.ADMIN, subject="root@example.com") | TRACED


def make_key(api: Api, tenant: str = "demo", **chosen: Any) -> dict[str, Any]:
    body = {"name": "shop", "scopes": ["notifications:read"]} | chosen
    response = api.client.post(KEYS, json=body, headers=admin(api, tenant))
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.get_json()
    return made


def log(api: Api, tenant: str = "demo", **query: Any) -> list[dict[str, Any]]:
    response = api.client.get(AUDIT, headers=admin(api, tenant), query_string=query)
    assert response.status_code == 200, response.text
    entries: list[dict[str, Any]] = response.get_json()["data"]
    return entries


def test_the_life_of_a_key_is_three_entries(api: Api) -> None:
    """Who, what, when, from where, and in which trace; the key itself is in none of them.

    Fails when the statement of a change leaves its entry out, and when revoking again leaves another.
    """
    made = make_key(api)
    new = api.client.post(f"{KEYS}/{made['id']}/rotate", headers=admin(api)).get_json()
    for _ in range(2):
        assert api.client.delete(f"{KEYS}/{new['id']}", headers=admin(api)).status_code == 204
    revoked, rotated, created = log(api)
    assert [entry["action"] for entry in (created, rotated, revoked)] == [
        "api_key.created",
        "api_key.rotated",
        "api_key.revoked",
    ]
    assert created["resource"] == rotated["resource"] == {"type": "api_key", "id": made["id"]}
    assert revoked["resource"]["id"] == new["id"]
    assert created["changes"] == {
        "name": "shop",
        "scopes": ["notifications:read"],
        "expires_in": None,
        "prefix": made["prefix"],
    }
    assert rotated["changes"]["replaced_by"] == new["id"]
    for entry in (created, rotated, revoked):
        assert (entry["actor"], entry["actor_role"], entry["key_id"]) == ("root@example.com", "ADMIN", None)
        assert (entry["address"], entry["trace_id"], entry["count"]) == ("127.0.0.0/24", TRACE, 1)
        assert abs(datetime.now(UTC) - datetime.fromisoformat(entry["at"])) < timedelta(minutes=1)
        assert made["key"] not in str(entry)


def test_what_was_not_done_leaves_no_entry(api: Api) -> None:
    """Refused, not found, of another tenant: the log is of changes."""
    made = make_key(api, "other")
    assert api.client.delete(f"{KEYS}/{made['id']}", headers=admin(api)).status_code == 404
    assert api.client.post(f"{KEYS}/{made['id']}/rotate", headers=admin(api)).status_code == 404
    assert api.client.post(KEYS, json={"name": "a", "scopes": ["no"]}, headers=admin(api)).status_code == 422
    assert log(api) == []
    assert [entry["action"] for entry in log(api, "other")] == ["api_key.created"]


def test_a_change_and_its_entry_are_one(api: Api, rows: Rows) -> None:
    """A log that cannot be written stops the change. Fails when the entry is sent apart from it."""
    rows("REVOKE INSERT ON audit_entry FROM arauto_api")
    assert (
        api.client.post(KEYS, json={"name": "a", "scopes": ["audit:read"]}, headers=admin(api)).status_code == 500
    )
    assert rows("SELECT FROM api_key") == []


def test_a_cancellation_says_what_it_found(api: Api) -> None:
    """By a person too; repeating it finds nothing to change and leaves nothing."""
    sent = api.post(sms(user_id="ana", scheduled_at=None, channels=["SMS"]))
    identifier = sent.get_json()["id"]
    ana = api.bearer(role=Role.USER, subject="ana")
    for _ in range(2):
        assert api.client.post(f"{PATH}/{identifier}/cancel", headers=ana).status_code == 200
    (entry,) = log(api, action="notification")
    assert (entry["action"], entry["actor"], entry["actor_role"]) == ("notification.cancelled", "ana", "USER")
    assert entry["resource"] == {"type": "notification", "id": identifier}
    assert entry["changes"] == {"cancelled": 1, "asked_to_end": 0}


def test_a_key_that_acts_is_named(api: Api) -> None:
    """By its prefix as the actor, and by its id."""
    made = make_key(api, scopes=["notifications:write"])
    identifier = api.post(sms()).get_json()["id"]
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert api.client.post(f"{PATH}/{identifier}/cancel", headers=headers).status_code == 200
    (entry,) = log(api, action="notification.cancelled")
    assert (entry["actor"], entry["actor_role"], entry["key_id"]) == (made["prefix"], "SERVICE", made["id"])


def test_sign_ins_that_fail_are_gathered(api: Api, rows: Rows) -> None:
    """Those of a key that is known belong to its tenant; all others to nobody, and no claim of theirs is kept."""
    made = make_key(api)
    api.client.delete(f"{KEYS}/{made['id']}", headers=admin(api))
    wrong = made["key"][:20] + ("0" if made["key"][20] != "0" else "1") + made["key"][21:]
    for credential in [made["key"]] * 3 + ["nonsense"] * 4 + [wrong] * 2:
        api.client.get(AUDIT, headers={"Authorization": f"Bearer {credential}"})
    old = api.app.test_client().get(AUDIT, headers=api.bearer("demo"))
    assert old.status_code == 403, "a scope that lacks is no failed sign-in"
    api_services(api.settings).sign_in_failures.flush()
    (entry,) = log(api, action="sign_in.failed")
    assert (entry["actor"], entry["count"]) == (made["prefix"], 3)
    assert (entry["changes"], entry["address"]) == ({"reason": "AUTH_KEY_REVOKED"}, "127.0.0.0/24")
    found = rows("SELECT tenant_id, actor, changes->>'reason', count FROM audit_entry WHERE tenant_id = ''")
    assert {tuple(row) for row in found} == {
        ("", "unknown", "AUTH_TOKEN_INVALID", 4),
        ("", "unknown", "AUTH_KEY_INVALID", 2),
    }
    whole = str(rows("SELECT e::text FROM audit_entry e"))
    assert not re.search(r"ak_[0-9a-f]{12}_|127\.0\.0\.1|eyJ", whole)


def test_who_may_read_it(api: Api) -> None:
    """ADMIN, or the scope; not a person, and not every service."""
    statuses = {
        role: api.client.get(AUDIT, headers=api.bearer(scope=scope, role=role)).status_code
        for role, scope in ((Role.SERVICE, "audit:read"), (Role.ADMIN, ""), (Role.USER, "audit:read"))
    }
    assert statuses == {Role.SERVICE: 200, Role.ADMIN: 200, Role.USER: 403}
    assert api.get(AUDIT).status_code == 403


def test_pages_are_whole_and_filters_hold_on_each(api: Api) -> None:
    """Case K13. Every entry once, newest first, through pages of any size; filters narrow and never widen."""
    ids = [make_key(api, name=f"key-{number}")["id"] for number in range(7)]
    make_key(api, "other")
    for limit in (1, 3, 7, 100):
        seen, cursor = [], None
        while True:
            query = {"limit": limit, "action": "api_key"} | ({"cursor": cursor} if cursor else {})
            page = api.client.get(AUDIT, headers=admin(api), query_string=query).get_json()
            seen += [entry["resource"]["id"] for entry in page["data"]]
            assert len(page["data"]) <= limit
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert sorted(seen) == sorted(ids)
        assert len(set(seen)) == 7
    assert [e["resource"]["id"] for e in log(api, resource_id=ids[2])] == [ids[2]]
    assert len(log(api, actor="root@example.com", resource_type="api_key")) == 7
    assert log(api, actor="nobody") == log(api, action="api_key.revoked") == log(api, action="api") == []
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    assert len(log(api, **{"from": (now - hour).isoformat(), "to": (now + hour).isoformat()})) == 7
    assert log(api, to=(now - hour).isoformat()) == log(api, **{"from": (now + hour).isoformat()}) == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("acton=api_key", "VALIDATION_QUERY"),
        ("actor=a&actor=b", "VALIDATION_QUERY"),
        ("actor=", "VALIDATION_QUERY"),
        ("actor=a%00b", "VALIDATION_QUERY"),
        ("actor=" + "x" * 256, "VALIDATION_QUERY"),
        ("from=yesterday", "VALIDATION_QUERY"),
        ("from=2026-07-01T09:00:00", "VALIDATION_QUERY"),
        ("to=9999-12-31T23:59:59-23:59", "VALIDATION_QUERY"),
        ("limit=0", "VALIDATION_QUERY"),
        ("cursor=abc", "VALIDATION_CURSOR"),
    ],
)
def test_a_query_that_cannot_be_understood_is_refused(api: Api, query: str, code: str) -> None:
    """Case K01. A typo in a filter does not show the whole log."""
    response = api.client.get(f"{AUDIT}?{query}", headers=admin(api))
    assert response.status_code == 400, response.text
    assert error_of(response)["code"] == code


def test_a_cursor_is_of_one_tenant(api: Api) -> None:
    """And of this list."""
    for _ in range(2):
        make_key(api)
    cursor = api.client.get(f"{AUDIT}?limit=1", headers=admin(api)).get_json()["next_cursor"]
    keys = api.client.get(f"{KEYS}?limit=1", headers=admin(api)).get_json()["next_cursor"]
    for tenant, given in (("other", cursor), ("demo", keys)):
        response = api.client.get(f"{AUDIT}?cursor={given}", headers=admin(api, tenant))
        assert error_of(response)["code"] == "VALIDATION_CURSOR"


def test_the_database_shows_a_tenant_its_own_entries_alone(api: Api, database_url: str) -> None:
    """Raw SQL without any WHERE, as the API's role. Fails without row-level security on the table."""
    make_key(api)
    make_key(api, "other")
    connection = psycopg2.connect(database_url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        run_as_tenant(cursor, "SELECT DISTINCT tenant_id FROM audit_entry", {"tenant_id": "demo"})
        assert cursor.fetchall() == [("demo",)]
        run_as_tenant(cursor, "SELECT count(*) FROM audit_entry", {"tenant_id": ""})
        assert cursor.fetchall() == [(0,)]
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            run_as_tenant(
                cursor,
                """INSERT INTO audit_entry (id, tenant_id, actor, actor_role, action, resource_type, resource_id)
                   SELECT id, 'other', 'x', 'ADMIN', 'a.b', 'a', 'b' FROM audit_entry""",
                {"tenant_id": "demo"},
            )
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entry SET actor = 'nobody'",
        "DELETE FROM audit_entry",
        "TRUNCATE audit_entry",
        "UPDATE {partition} SET actor = 'nobody'",
        "DELETE FROM {partition}",
        "TRUNCATE {partition}",
    ],
)
def test_nobody_can_change_an_entry(api: Api, engine: Engine, rows: Rows, statement: str) -> None:
    """Neither the API's role nor the owner of the table, and not by way of a partition.

    Fails without the trigger of the table, and for TRUNCATE of a partition without that of the partition.
    """
    make_key(api)
    partition = f"audit_entry_{datetime.now(UTC):%Y%m}"
    for role in ("RESET ROLE", "SET LOCAL ROLE arauto_api"):
        with engine.connect() as connection:
            connection.exec_driver_sql(role)
            with pytest.raises(ProgrammingError):
                connection.exec_driver_sql(statement.format(partition=partition))
    assert len(rows("SELECT FROM audit_entry WHERE actor = 'root@example.com'")) == 1
