"""API keys: made once and shown once, held to their scopes and their tenant, replaced, revoked and out of date."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy.engine import Engine, Row
from sqlalchemy.exc import ProgrammingError
from werkzeug.test import TestResponse

from app.db.api_keys import LOOK_UP
from app.domain.api_keys import mint
from app.domain.callers import Role
from app.services.sign_in import SignIn
from app.wiring import api_services
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.waiting import eventually

Rows = Callable[..., list[Row[Any]]]

KEYS = "/v1/api-keys"
SOME = f"{PATH}/01a22d60-47d0-79a7-9147-1bc22276754c"
EVERYTHING = "keys:manage notifications:read notifications:write"


def manager(api: Api, tenant: str = "demo", scope: str = EVERYTHING) -> dict[str, str]:
    return api.bearer(tenant, scope)


def create(api: Api, tenant: str = "demo", headers: dict[str, str] | None = None, **chosen: Any) -> dict[str, Any]:
    body = {"name": "shop", "scopes": ["notifications:read", "notifications:write"]} | chosen
    response = api.client.post(KEYS, json=body, headers=headers or manager(api, tenant))
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.get_json()
    return made


def rotate(api: Api, identifier: str, body: Any = None, headers: dict[str, str] | None = None) -> TestResponse:
    named = {} if body is None else {"json": body}
    return api.client.post(f"{KEYS}/{identifier}/rotate", headers=headers or manager(api), **named)


def with_key(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def read(api: Api, key: str) -> TestResponse:
    """Read something that does not exist: 404 when the key was accepted."""
    return api.app.test_client().get(SOME, headers=with_key(key))


def sign_in(api: Api) -> SignIn:
    return api_services(api.settings).sign_in


def forget(api: Api) -> None:
    """Let every memory of a look at a key be out of date."""
    sign_in(api)._known.clear()
    sign_in(api)._verify_key._refused.clear()  # type: ignore[attr-defined]


@contextmanager
def later(api: Api, seconds: float) -> Iterator[None]:
    """The API's own clock goes ahead."""
    signing = sign_in(api)
    verify = signing._verify_key
    before = signing._clock
    signing._clock = verify._clock = lambda: time.time() + seconds  # type: ignore[attr-defined]
    try:
        yield
    finally:
        signing._clock = verify._clock = before  # type: ignore[attr-defined]


def test_a_key_is_shown_once_and_stored_as_a_digest(api: Api, rows: Rows) -> None:
    """The secret is nowhere in the database, and the answer is for nobody's cache.

    Fails when anything that the key could be made from is stored.
    """
    response = api.client.post(
        KEYS, json={"name": "shop", "scopes": ["notifications:write"]}, headers=manager(api)
    )
    made = response.get_json()
    assert response.headers["Cache-Control"] == "no-store"
    assert re.fullmatch(r"ak_[0-9a-f]{12}_[0-9a-f]{72}", made["key"])
    assert made["key"].startswith(made["prefix"] + "_")
    (stored,) = rows("SELECT *, api_key::text AS everything FROM api_key")
    assert bytes(stored.digest) == hashlib.sha256(made["key"].encode()).digest()
    assert made["key"].rpartition("_")[2][:20] not in stored.everything
    listed = api.client.get(KEYS, headers=manager(api))
    assert listed.get_json() == {
        "data": [{name: value for name, value in made.items() if name != "key"}],
        "next_cursor": None,
    }
    assert made["status"] == "ACTIVE"
    assert made["created_by"] == "tests"
    assert made["scopes"] == ["notifications:write"]
    assert made["expires_at"] is made["revoked_at"] is made["replaced_by"] is made["last_used_at"] is None


def test_a_key_does_what_its_scopes_say_and_for_its_tenant(api: Api) -> None:
    """Accepting, reading and cancelling; nothing of another tenant; no route beyond its scopes."""
    key = create(api)["key"]
    headers = with_key(key)
    made = api.client.post(PATH, json=sms(), headers=headers | {"Idempotency-Key": "k"})
    assert made.status_code == 202
    path = f"{PATH}/{made.get_json()['id']}"
    assert api.client.get(path, headers=headers).status_code == 200
    assert api.client.get(path, headers=with_key(create(api, "other")["key"])).status_code == 404
    refused = api.client.get(KEYS, headers=headers)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_SCOPE_MISSING")
    writer = create(api, scopes=["notifications:write"])["key"]
    assert read(api, writer).status_code == 403


def test_what_is_no_key_is_refused_without_a_look_into_the_database(make_api: Callable[..., Api]) -> None:
    """A mistyped key fails its check sum: 401 although the database is away. One of the right form needs a look.

    Fails when a database that is down makes a key look invalid.
    """
    api = make_api(database_url="postgresql://arauto@127.0.0.1:1/arauto")
    good = mint().text
    mistyped = good[:-1] + ("0" if good[-1] != "0" else "1")
    others = ("ak_", good[:-1], good + "0", "ak_" + good[3:].upper(), f"ak_{'0' * 12}_{'0' * 72}", "ak_é")
    for key in (mistyped, *others, "ak_" + "x" * 10_000):
        response = read(api, key)
        assert (response.status_code, error_of(response)["code"]) == (401, "AUTH_KEY_INVALID"), key
        assert response.headers["WWW-Authenticate"] == "Bearer"
    response = read(api, good)
    assert (response.status_code, error_of(response)["code"]) == (503, "INFRA_DATABASE_UNAVAILABLE")
    assert response.headers["Retry-After"] == "5"


def test_strange_keys_are_refused_and_remembered_within_bounds(api: Api, rows: Rows) -> None:
    """A key that nobody made, and one with a prefix that exists; asked again they cost no look for a while.

    Fails when each refusal is remembered without an end to their number.
    """
    known = create(api)
    verify = sign_in(api)._verify_key
    looks = []
    look_up = verify._pool.run  # type: ignore[attr-defined]
    verify._pool.run = lambda work: looks.append(1) or look_up(work)  # type: ignore[attr-defined]
    try:
        strange = mint().text
        guessed = forged_with(known["prefix"])
        for _ in range(3):
            for key in (strange, guessed):
                response = read(api, key)
                assert (response.status_code, error_of(response)["code"]) == (401, "AUTH_KEY_INVALID")
        assert len(looks) == 2
        with later(api, 6):
            assert read(api, strange).status_code == 401
        assert len(looks) == 3
        verify._refused.update({str(n).encode(): (0.0, "", "") for n in range(5000)})  # type: ignore[attr-defined]
        read(api, mint().text)
        assert len(verify._refused) == 1  # type: ignore[attr-defined]
    finally:
        verify._pool.run = look_up  # type: ignore[attr-defined]
    assert len(sign_in(api)._known) <= 2


def forged_with(prefix: str) -> str:
    """A key of the right form, with a right check sum, under the prefix of another one."""
    from zlib import crc32

    body = f"{prefix}_{'5' * 64}"
    return f"{body}{crc32(body.encode()):08x}"


def test_a_known_key_costs_no_look_into_the_database(api: Api, rows: Rows) -> None:
    """For a few seconds; then a revoked one has ended."""
    made = create(api)
    assert read(api, made["key"]).status_code == 404
    rows("UPDATE api_key SET revoked_at = now()")
    assert read(api, made["key"]).status_code == 404, "remembered"
    with later(api, 6):
        response = read(api, made["key"])
    assert (response.status_code, error_of(response)["code"]) == (401, "AUTH_KEY_REVOKED")


def test_an_expiry_is_exact(api: Api, rows: Rows) -> None:
    """A key is remembered until its end at most, and its end is the database's.

    Fails when a look counts for its few seconds whatever the key has left.
    """
    made = create(api, expires_in=3600)
    assert made["expires_at"] is not None
    rows("UPDATE api_key SET expires_at = now() + interval '1 s'")
    assert read(api, made["key"]).status_code == 404
    assert sign_in(api)._known[made["key"]].until - time.time() <= 1
    eventually(lambda: read(api, made["key"]).status_code == 401)
    assert error_of(read(api, made["key"]))["code"] == "AUTH_KEY_EXPIRED"


def test_nobody_makes_a_key_that_does_more_than_they_may(api: Api) -> None:
    """Neither by making nor by rotating, which answers with a key that works.

    Fails when rotation does not look at the scopes of the key.
    """
    few = manager(api, scope="keys:manage notifications:read")
    refused = api.client.post(KEYS, json={"name": "n", "scopes": ["notifications:write"]}, headers=few)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_SCOPE_NOT_HELD")
    mighty = create(api, scopes=["notifications:write", "keys:manage"])
    refused = rotate(api, mighty["id"], headers=few)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_SCOPE_NOT_HELD")
    admin = api.bearer(scope="", role=Role.ADMIN)
    assert create(api, headers=admin, scopes=["receipts:write"])["scopes"] == ["receipts:write"]
    by_key = create(api, headers=with_key(mighty["key"]), scopes=["notifications:write"])
    assert by_key["created_by"] == mighty["prefix"]
    refused = api.client.post(
        KEYS, json={"name": "n", "scopes": ["notifications:read"]}, headers=with_key(mighty["key"])
    )
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "VALIDATION_BODY"),
        ({"name": "n"}, 400, "VALIDATION_BODY"),
        ({"name": "n", "scopes": []}, 400, "VALIDATION_BODY"),
        ({"name": "", "scopes": ["notifications:read"]}, 400, "VALIDATION_BODY"),
        ({"name": "a\nb", "scopes": ["notifications:read"]}, 400, "VALIDATION_BODY"),
        ({"name": "a\0b", "scopes": ["notifications:read"]}, 400, "VALIDATION_TEXT"),
        ({"name": "x" * 65, "scopes": ["notifications:read"]}, 400, "VALIDATION_BODY"),
        ({"name": "n", "scopes": ["notifications:read"], "expires_in": 0}, 400, "VALIDATION_BODY"),
        ({"name": "n", "scopes": ["notifications:read"], "expires_in": 10**12}, 400, "VALIDATION_BODY"),
        ({"name": "n", "scopes": ["notifications:read"], "role": "ADMIN"}, 400, "VALIDATION_BODY"),
        ({"name": "n", "scopes": ["everything"]}, 422, "DOMAIN_SCOPE_UNKNOWN"),
    ],
)
def test_a_request_for_a_key_is_checked(api: Api, body: Any, status: int, code: str, rows: Rows) -> None:
    """Nothing is made of what does not fit."""
    response = api.client.post(KEYS, json=body, headers=manager(api))
    assert response.status_code == status, response.text
    assert error_of(response)["code"] == code
    assert rows("SELECT FROM api_key") == []


def test_a_rotated_key_goes_on_for_the_overlap(api: Api, rows: Rows) -> None:
    """Both work, then only the new one, which has the name, the scopes and the lifetime of the old one."""
    old = create(api, name="shop", scopes=["notifications:read"], expires_in=7200)
    response = rotate(api, old["id"])
    assert response.status_code == 201
    new = response.get_json()
    assert (new["name"], new["scopes"], new["status"]) == ("shop", ["notifications:read"], "ACTIVE")
    (shown,) = rows("SELECT expires_at - created_at AS lifetime FROM api_key WHERE replaced_by IS NULL")
    assert 7199 < shown.lifetime.total_seconds() <= 7200
    listed = {each["id"]: each for each in api.client.get(KEYS, headers=manager(api)).get_json()["data"]}
    assert (listed[old["id"]]["status"], listed[old["id"]]["replaced_by"]) == ("REPLACED", new["id"])
    assert listed[old["id"]]["expires_at"] == old["expires_at"], "an overlap never makes a key live longer"
    assert read(api, old["key"]).status_code == read(api, new["key"]).status_code == 404
    rows("UPDATE api_key SET expires_at = now() WHERE replaced_by IS NOT NULL")
    forget(api)
    assert error_of(read(api, old["key"]))["code"] == "AUTH_KEY_EXPIRED"
    assert read(api, new["key"]).status_code == 404


def test_the_overlap_is_as_asked(api: Api, rows: Rows) -> None:
    """A day unless asked; none when it is 0; one that is no number of seconds is refused."""
    for body, seconds in ((None, 86_400), ({}, 86_400), ({"overlap_seconds": 60}, 60)):
        key = create(api)
        assert rotate(api, key["id"], body).status_code == 201
        (row,) = rows("SELECT expires_at - now() AS left FROM api_key WHERE id = %(id)s::uuid", id=key["id"])
        assert seconds - 30 < row.left.total_seconds() <= seconds
    gone = create(api)
    assert rotate(api, gone["id"], {"overlap_seconds": 0}).status_code == 201
    assert error_of(read(api, gone["key"]))["code"] == "AUTH_KEY_EXPIRED"
    for bad in ({"overlap_seconds": -1}, {"overlap_seconds": 10**9}, {"overlap_seconds": "60"}, {"x": 1}, []):
        assert rotate(api, create(api)["id"], bad).status_code == 400, bad


def test_a_key_is_replaced_once(api: Api, rows: Rows, engine: Engine) -> None:
    """Of four that rotate it at the same time one gets a key. What has ended cannot be rotated.

    Fails when the row is not locked before it is looked at.
    """
    key = create(api)
    with ThreadPoolExecutor(4) as threads:
        with engine.begin() as holder:
            holder.exec_driver_sql("SELECT FROM api_key FOR UPDATE")
            racing = [threads.submit(rotate_alone, api, key["id"]) for _ in range(4)]
            waiting = (
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            eventually(lambda: len(rows(waiting)) == 4)
        answers = [each.result() for each in racing]
    assert sorted(answers) == [(201, "")] + [(422, "DOMAIN_API_KEY_REPLACED")] * 3
    assert len(rows("SELECT FROM api_key")) == 2
    for state in ("revoked_at = now()", "expires_at = now()"):
        ended = create(api)
        rows(f"UPDATE api_key SET {state} WHERE id = %(id)s::uuid", id=ended["id"])
        response = rotate(api, ended["id"])
        assert (response.status_code, error_of(response)["code"]) == (422, "DOMAIN_API_KEY_ENDED")


def rotate_alone(api: Api, identifier: str) -> tuple[int, str]:
    response = api.app.test_client().post(f"{KEYS}/{identifier}/rotate", headers=manager(api))
    return response.status_code, "" if response.status_code == 201 else error_of(response)["code"]


def test_a_revoked_key_has_ended_for_good(api: Api, rows: Rows) -> None:
    """204, and again 204; the moment of the first time stays."""
    key = create(api)
    for _ in range(2):
        assert api.client.delete(f"{KEYS}/{key['id']}", headers=manager(api)).status_code == 204
        (row,) = rows("SELECT revoked_at FROM api_key")
        rows("UPDATE api_key SET revoked_at = '2020-01-01'")
    assert row.revoked_at.year == 2020
    response = read(api, key["key"])
    assert (response.status_code, error_of(response)["code"]) == (401, "AUTH_KEY_REVOKED")
    assert api.client.get(KEYS, headers=manager(api)).get_json()["data"][0]["status"] == "REVOKED"


def test_a_key_of_another_tenant_does_not_exist(api: Api, rows: Rows) -> None:
    """404 for what is another's, what never was, and what is no id; nothing changes."""
    theirs = create(api, "other")
    for identifier in (theirs["id"], "01a22d60-47d0-79a7-9147-1bc22276754c", "7", "%00", theirs["prefix"]):
        for response in (
            rotate(api, identifier),
            api.client.delete(f"{KEYS}/{identifier}", headers=manager(api)),
        ):
            assert response.status_code == 404
            assert error_of(response)["code"] == "DOMAIN_API_KEY_NOT_FOUND"
    assert api.client.get(KEYS, headers=manager(api)).get_json()["data"] == []
    assert [(row.revoked_at, row.replaced_by) for row in rows("SELECT * FROM api_key")] == [(None, None)]


def test_a_list_shows_every_key_once(api: Api, rows: Rows) -> None:
    """Pages by cursor, newest first, however many were made in one moment."""
    create(api, "other")
    rows(
        "INSERT INTO api_key (id, tenant_id, prefix, digest, name, scopes, created_by)"
        " SELECT gen_random_uuid(), 'demo', 'ak_' || n, sha256(n::text::bytea), n::text, '{x}', 't'"
        " FROM generate_series(1, 45) n"
    )
    seen: list[str] = []
    cursor = ""
    for size in (20, 20, 5):
        page = api.client.get(f"{KEYS}?cursor={cursor}" if cursor else KEYS, headers=manager(api)).get_json()
        assert len(page["data"]) == size
        seen += [each["id"] for each in page["data"]]
        cursor = page["next_cursor"]
    assert cursor is None
    assert seen == [
        str(row.id) for row in rows("SELECT id FROM api_key WHERE tenant_id = 'demo' ORDER BY id DESC")
    ]
    assert len(api.client.get(f"{KEYS}?limit=3", headers=manager(api)).get_json()["data"]) == 3


def test_a_cursor_that_we_did_not_make_is_refused(api: Api) -> None:
    """Case K15. Any other text, another tenant's cursor, and a cursor with something behind it."""
    for tenant in ("demo", "other"):
        create(api, tenant)
        create(api, tenant)
    own = api.client.get(f"{KEYS}?limit=1", headers=manager(api)).get_json()["next_cursor"]
    other = api.client.get(f"{KEYS}?limit=1", headers=manager(api, "other")).get_json()["next_cursor"]
    assert api.client.get(f"{KEYS}?cursor={own}", headers=manager(api)).status_code == 200
    flipped = own[:-1] + ("A" if own[-1] != "A" else "B")
    for bad in ("", "123", "%00", "====", "x" * 5_000, own + "!", own + "=", own + "%0A", flipped, other, "é",
                own.swapcase(), own.replace(own[0], "+", 1)):  # fmt: skip
        response = api.client.get(f"{KEYS}?cursor={bad}", headers=manager(api))
        assert (response.status_code, error_of(response)["code"]) == (400, "VALIDATION_CURSOR"), bad
    for bad in ("0", "101", "-1", "x", "", "1e1", "1_0", "٣", "9" * 5000):
        response = api.client.get(f"{KEYS}?limit={bad}", headers=manager(api))
        assert (response.status_code, error_of(response)["code"]) == (400, "VALIDATION_QUERY"), bad


def test_the_database_itself_separates_tenants_keys(api: Api, engine: Engine) -> None:
    """Fails without the policies, or when the API's role may pass them: there is no WHERE in these queries."""
    mine, theirs = create(api), create(api, "other")
    everything = "SELECT prefix FROM api_key ORDER BY id"
    for tenant, shown, seen in (
        ("demo", "", [mine["prefix"]]),
        ("other", "", [theirs["prefix"]]),
        ("", "", []),
        ("", theirs["prefix"], [theirs["prefix"]]),
        ("", theirs["prefix"][:-1], []),
    ):
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
            connection.exec_driver_sql(
                "SELECT set_config('arauto.tenant', %(tenant)s, true),"
                " set_config('arauto.key_prefix', %(shown)s, true)",
                {"tenant": tenant, "shown": shown},
            )
            assert [row[0] for row in connection.exec_driver_sql(everything)] == seen
            # Who shows a key may look at it, and end nothing.
            changed = connection.exec_driver_sql("UPDATE api_key SET revoked_at = now()").rowcount
            assert changed == (1 if tenant else 0)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET ROLE arauto_api")
        assert list(connection.exec_driver_sql(everything)) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE api_key SET scopes = '{keys:manage}'",
        "UPDATE api_key SET tenant_id = 'other'",
        "UPDATE api_key SET digest = sha256('x')",
        "DELETE FROM api_key",
        """INSERT INTO api_key (id, tenant_id, prefix, digest, name, scopes, created_by)
           VALUES (gen_random_uuid(), 'other', 'ak_x', sha256('x'), 'n', '{x}', 't')""",
    ],
)
def test_the_role_of_the_api_cannot_make_a_key_mightier(api: Api, engine: Engine, statement: str) -> None:
    """It may end keys and make new ones of its tenant; what a key may do, and whose it is, is fixed.

    Fails when the role gets UPDATE on the whole table, or the policy does not hold for what is written.
    """
    create(api)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
        connection.exec_driver_sql("SELECT set_config('arauto.tenant', 'demo', true)")
        with pytest.raises(ProgrammingError, match=r"permission denied|row-level security"):
            connection.exec_driver_sql(statement)


def test_a_look_up_and_a_page_read_an_index(engine: Engine) -> None:
    """A key is found by its prefix at the same cost however many there are."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO api_key (id, tenant_id, prefix, digest, name, scopes, created_by)"
            " SELECT gen_random_uuid(), 't' || mod(n, 100), 'ak_' || n, sha256('x'), 'n', '{x}', 't'"
            " FROM generate_series(1, 5000) n"
        )
        connection.exec_driver_sql("ANALYZE api_key")
        connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
        plan = connection.exec_driver_sql(f"EXPLAIN {LOOK_UP}", {"prefix": "ak_7"})
        assert "uq_api_key_prefix" in "\n".join(row[0] for row in plan)


def test_the_last_use_is_written_behind_the_requests(api: Api, rows: Rows) -> None:
    """The first use within a moment, though no request waits for it; the next ones not before a minute is over."""
    key = create(api)
    assert read(api, key["key"]).status_code == 404
    (first,) = eventually(
        lambda: rows("SELECT last_used_at FROM api_key WHERE last_used_at > now() - interval '9 s'")
    )
    shown = api.client.get(KEYS, headers=manager(api)).get_json()["data"][0]["last_used_at"]
    assert shown is not None
    for _ in range(3):
        assert read(api, key["key"]).status_code == 404
    uses = sign_in(api)._note_use.__self__  # type: ignore[attr-defined]
    uses.write_due()
    assert rows("SELECT last_used_at FROM api_key") == [first]
    uses.flush()
    assert rows("SELECT last_used_at FROM api_key")[0].last_used_at > first.last_used_at


def test_connections_that_died_are_not_taken_for_a_dead_key(api: Api, rows: Rows) -> None:
    """After a restart every connection is dead, and no caller is told that their key is."""
    key = create(api)["key"]
    rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'arauto-api'")
    assert read(api, key).status_code == 404
