"""Users: written, read, listed, looked up, masked, and kept apart by tenant and person."""

import itertools
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from sqlalchemy.engine import Engine, Row
from werkzeug.test import TestResponse

from app.domain.callers import Role
from tests.integration.api.conftest import Api, error_of, sms

Rows = Callable[..., list[Row[Any]]]

USERS = "/v1/users"
EVERYTHING = "users:read users:write recipients:read"
ANA: dict[str, Any] = {
    "email": "Ana@Sandbox.Example.com",
    "phone": "+44 7700 900000",
    "locale": "PT-br",
    "time_zone": "America/Sao_Paulo",
    "attributes": {"plan": "pro", "seats": 3},
    "last_seen_at": "2026-11-30T12:00:00+01:00",
}


def call(
    api: Api,
    method: str,
    path: str,
    body: Any = None,
    *,
    scope: str = EVERYTHING,
    tenant: str = "demo",
    user: str | None = None,
) -> TestResponse:
    """Call the API as a service, or as the person `user`; a body of bytes is sent as it is."""
    role = Role.SERVICE if user is None else Role.USER
    headers = api.bearer(tenant, scope, role, user or "tests")
    if body is not None:
        headers["Content-Type"] = "application/json"
    raw = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
    return api.app.test_client().open(path, method=method, headers=headers, data=raw)


def put(api: Api, identifier: str, body: Any, **named: Any) -> dict[str, Any]:
    response = call(api, "PUT", f"{USERS}/{identifier}", body, **named)
    assert response.status_code in {200, 201}, response.text
    user: dict[str, Any] = response.get_json()
    return user


def problems(response: TestResponse) -> dict[str, str]:
    return {each["field"]: each["message"] for each in error_of(response)["details"]}


def test_a_user_is_created_replaced_read_and_merged(api: Api) -> None:
    """PUT clears what it leaves out, PATCH keeps it and merges attributes by their names."""
    first = call(api, "PUT", f"{USERS}/ana", ANA)
    assert first.status_code == 201
    user = first.get_json()
    made = user["created_at"]
    assert user == {
        "id": "ana",
        "status": "ACTIVE",
        "email": "Ana@sandbox.example.com",
        "phone": "+447700900000",
        "locale": "pt-BR",
        "time_zone": "America/Sao_Paulo",
        "attributes": {"plan": "pro", "seats": 3},
        "last_seen_at": "2026-11-30T11:00:00.000Z",
        "created_at": made,
        "updated_at": user["updated_at"],
    }
    change = {"status": "SUSPENDED", "phone": None, "attributes": {"seats": None, "team": {"x": None}}}
    merged = call(api, "PATCH", f"{USERS}/ana", change).get_json()
    assert (merged["status"], merged["phone"], merged["email"]) == ("SUSPENDED", None, "Ana@sandbox.example.com")
    assert merged["attributes"] == {"plan": "pro", "team": {"x": None}}
    replaced = call(api, "PUT", f"{USERS}/ana", {"locale": "en"})
    assert replaced.status_code == 200
    user = replaced.get_json()
    assert (user["email"], user["attributes"], user["status"], user["locale"]) == (None, {}, "ACTIVE", "en")
    assert user["created_at"] == made
    assert call(api, "GET", f"{USERS}/ana").get_json() == user
    absent = call(api, "PATCH", f"{USERS}/bea", {"locale": "en"})
    assert (absent.status_code, error_of(absent)["code"]) == (404, "DOMAIN_USER_UNKNOWN")


def test_addresses_are_unreadable_in_the_database(api: Api, rows: Rows) -> None:
    """Neither in the row nor in any index. Fails when an address is stored as it is."""
    put(api, "ana", ANA)
    ((text, email),) = rows("SELECT app_user::text, email FROM app_user")
    for part in ("sandbox", "7700", b"sandbox".hex(), b"7700".hex()):
        assert part not in text
    assert bytes(email)[:3] == b"\x01\x00\x01"


def test_addresses_are_masked_but_for_the_user_and_who_may_read_them(api: Api) -> None:
    """In answers to GET, PUT, PATCH and in lists.

    Fails when one of them forgets to ask for the scope.
    """
    masked = ("A***@s***.com", "+44*****0000")
    blind = {"scope": "users:read users:write"}
    first = put(api, "ana", ANA, **blind)
    patched = call(api, "PATCH", f"{USERS}/ana", {"locale": "en"}, **blind).get_json()
    read = call(api, "GET", f"{USERS}/ana", **blind).get_json()
    (listed,) = call(api, "GET", USERS, **blind).get_json()["data"]
    for user in (first, patched, read, listed):
        assert (user["email"], user["phone"]) == masked
    own = call(api, "GET", f"{USERS}/ana", scope="users:read", user="ana").get_json()
    service = call(api, "GET", f"{USERS}/ana").get_json()
    for user in (own, service):
        assert (user["email"], user["phone"]) == ("Ana@sandbox.example.com", "+447700900000")


def test_a_person_reads_and_changes_only_their_own_record(api: Api) -> None:
    """Locale and zone, nothing else; others are not there; lists, PUT, bulk and DELETE are not for persons."""
    put(api, "ana", ANA)
    put(api, "bea", ANA)
    assert call(api, "PATCH", f"{USERS}/ana", {"time_zone": "Europe/Lisbon"}, user="ana").status_code == 200
    for field in ("email", "phone", "status", "attributes", "last_seen_at"):
        refused = call(api, "PATCH", f"{USERS}/ana", {field: ANA.get(field, "ACTIVE")}, user="ana")
        assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_FIELD_NOT_ALLOWED")
        assert list(problems(refused)) == [field]
    for method, body in (("GET", None), ("PATCH", {"locale": "en"})):
        for other in ("bea", "nobody"):
            answer = call(api, method, f"{USERS}/{other}", body, user="ana")
            assert (answer.status_code, error_of(answer)["code"]) == (404, "DOMAIN_USER_UNKNOWN")
    for method, path, body in (
        ("PUT", f"{USERS}/ana", {}),
        ("DELETE", f"{USERS}/ana", None),
        ("GET", USERS, None),
        ("POST", f"{USERS}/bulk", {"users": [{"id": "ana"}]}),
    ):
        assert call(api, method, path, body, user="ana").status_code == 403, method


def test_tenants_have_users_of_their_own(api: Api, engine: Engine) -> None:
    """The same id in two tenants is two users; a raw query without any WHERE sees only the tenant's own.

    Fails without the policies.
    """
    put(api, "ana", ANA)
    put(api, "ana", {"email": "other@example.com"}, tenant="other")
    device = {"platform": "IOS", "token": "sandbox:ok-0123456789"}
    assert call(api, "POST", f"{USERS}/ana/devices", device).status_code == 201
    assert call(api, "POST", f"{USERS}/ana/devices", device, tenant="other").status_code == 201
    assert call(api, "GET", f"{USERS}/ana", tenant="other").get_json()["email"] == "other@example.com"
    assert call(api, "GET", f"{USERS}/ana").get_json()["phone"] == "+447700900000"
    found = call(api, "GET", f"{USERS}?email=Ana@sandbox.example.com", tenant="other").get_json()["data"]
    assert found == []
    assert call(api, "DELETE", f"{USERS}/ana", tenant="other").status_code == 202
    assert call(api, "GET", f"{USERS}/ana").status_code == 200
    for table in ("app_user", "device", "erasure"):
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
            connection.exec_driver_sql("SELECT set_config('arauto.tenant', 'demo', true)")
            seen = set(connection.exec_driver_sql(f"SELECT tenant_id FROM {table}").scalars())
            assert seen <= {"demo"}, table
            connection.exec_driver_sql("SELECT set_config('arauto.tenant', '', true)")
            assert connection.exec_driver_sql(f"SELECT tenant_id FROM {table}").first() is None


@pytest.mark.parametrize(
    "zone",
    ["http://x.example", "../../etc/passwd", "/etc/localtime", "", "leapseconds", "Mars/Phobos", "UTC+3", 42,
     "localtime", "europe/berlin", "Europe/Berlin\n", "posix/Europe/Berlin", "Europe/../Europe/Berlin", []],
)  # fmt: skip
def test_a_zone_that_is_none_is_refused_by_name(api: Api, zone: Any) -> None:
    """Of a user, of a row of a bulk, of a device. Case E05."""
    refused = call(api, "PUT", f"{USERS}/ana", {"time_zone": zone})
    assert (refused.status_code, list(problems(refused))) == (400, ["time_zone"])
    bulk = call(api, "POST", f"{USERS}/bulk", {"users": [{"id": "ana", "time_zone": zone}]}).get_json()
    assert bulk["results"][0]["error"]["details"][0]["field"] == "time_zone"
    device = {"platform": "IOS", "token": "t", "time_zone": zone}
    assert list(problems(call(api, "POST", f"{USERS}/ana/devices", device))) == ["time_zone"]


def test_national_spellings_are_one_number_where_a_country_is_known(api: Api) -> None:
    """By the region, or the country of a locale in the same body; without either only E.164 is read. Case H11."""
    put(api, "g1", {"phone": "+49 (0) 209 22334455"})
    put(api, "g2", {"phone": "+4920922334455"})
    put(api, "g3", {"phone": "0049 209 22334455", "region": "DE"})
    put(api, "g4", {"phone": "0209 22334455", "locale": "de-DE"})
    assert put(api, "i", {"phone": "06 12345678", "locale": "it-IT"})["phone"] == "+390612345678"
    found = call(api, "GET", f"{USERS}?phone=%2B4920922334455").get_json()["data"]
    assert [(user["id"], user["phone"]) for user in found] == [(f"g{n}", "+4920922334455") for n in range(1, 5)]
    for body in ({"phone": "0049 209 22334455"}, {"phone": "0209 22334455", "locale": "de"}, {"phone": "1"}):
        refused = call(api, "PUT", f"{USERS}/x", body)
        assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_RECIPIENT_INVALID")
        assert list(problems(refused)) == ["phone"]
        assert "209" not in refused.text.partition("timestamp")[0]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"statu": "ACTIVE"}, "statu"),
        ({"status": "active"}, "status"),
        ({"status": None}, "status"),
        ({"region": "de", "phone": "1"}, "region"),
        ({"locale": "pt_BR"}, "locale"),
        ({"locale": "x-private"}, "locale"),
        ({"locale": "de-u-co-phonebk"}, "locale"),
        ({"locale": "a"}, "locale"),
        ({"locale": "sl-rozaj-rozaj"}, "locale"),
        ({"locale": True}, "locale"),
        ({"email": 7}, "email"),
        ({"email": "x" * 321}, "email"),
        ({"attributes": []}, "attributes"),
        ({"attributes": {"x": "y" * 20_000}}, "attributes"),
        ({"attributes": {"x": 1e300}}, "attributes"),
        ({"attributes": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {}}}}}}}}}}, "attributes"),
        ({"last_seen_at": "2026-11-30T12:00:00"}, "last_seen_at"),
        ({"last_seen_at": "0001-01-01T00:00:00+14:00"}, "last_seen_at"),
        ({"last_seen_at": "2026-02-30T12:00:00Z"}, "last_seen_at"),
    ],
)
def test_what_does_not_fit_is_named(api: Api, body: Any, field: str) -> None:
    """Unknown fields, types, sizes; a PATCH refuses what a PUT refuses."""
    for method in ("PUT", "PATCH"):
        refused = call(api, method, f"{USERS}/ana", body)
        assert (refused.status_code, error_of(refused)["code"]) == (400, "VALIDATION_BODY")
        assert list(problems(refused)) == [field]


@pytest.mark.parametrize(
    "raw",
    [b'{"attributes": {"a": "x\\u0000"}}', b'{"attributes": {"a\\u0000": 1}}', b'{"locale": "\\ud83d"}',
     b"{", b"[]",
     b'{"attributes": {"a": NaN}}', b'{"attributes": {"a": ' + b"9" * 5000 + b"}}", b"null", b"\xff"],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused(api: Api, raw: bytes) -> None:
    """NUL, half a surrogate pair, what is no JSON object: 400, and no user."""
    assert call(api, "PUT", f"{USERS}/ana", raw).status_code == 400
    assert call(api, "GET", f"{USERS}/ana").status_code == 404


@pytest.mark.parametrize("identifier", ["a%00b", "%0A", "%20", "x" * 256, "erased:0", "."])
def test_an_id_that_no_user_can_have_is_refused(api: Api, identifier: str) -> None:
    """For every method, before the database is asked."""
    for method, body in (("GET", None), ("PUT", {}), ("PATCH", {}), ("DELETE", None)):
        answer = call(api, method, f"{USERS}/{identifier}", body)
        assert answer.status_code in {400, 404}, (method, answer.text)
        assert "INFRA" not in answer.text
    bad = [{"id": "a/b"}, {"id": ""}, {"id": 7}, {}, 3]
    bulk = call(api, "POST", f"{USERS}/bulk", {"users": bad}).get_json()
    assert [row["status"] for row in bulk["results"]] == ["rejected"] * 5


def test_ids_of_any_script_are_ids(api: Api) -> None:
    """255 characters of four bytes each too, also as the place of a cursor; and a user may be called bulk."""
    names = ["\U0001f600" * 255, "bulk", "ana@example.com", "ünï"]
    for name in names:
        put(api, name, {})
    seen = []
    cursor = ""
    for _ in names:
        page = call(api, "GET", f"{USERS}?limit=1{cursor}").get_json()
        seen += [user["id"] for user in page["data"]]
        cursor = f"&cursor={page['next_cursor']}"
    assert sorted(seen) == sorted(names)
    assert page["next_cursor"] is None
    assert call(api, "GET", f"{USERS}/bulk").get_json()["id"] == "bulk"


def test_lists_are_paged_filtered_and_bound_to_what_was_asked(api: Api) -> None:
    """Each user once; a cursor of one list is none of another; a query that cannot be understood is refused."""
    rows = [{"id": f"u{n:02}", "status": "SUSPENDED" if n % 3 == 0 else "ACTIVE"} for n in range(25)]
    assert call(api, "POST", f"{USERS}/bulk", {"users": rows}).get_json()["created"] == 25
    for status, expected in (
        ("", [row["id"] for row in rows]),
        ("&status=SUSPENDED", [row["id"] for row in rows if row["status"] == "SUSPENDED"]),
        ("&status=ACTIVE", [row["id"] for row in rows if row["status"] == "ACTIVE"]),
    ):
        seen: list[str] = []
        cursor = ""
        for _ in itertools.repeat(None, 10):
            page = call(api, "GET", f"{USERS}?limit=4{status}{cursor}").get_json()
            seen += [user["id"] for user in page["data"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert seen == expected
    for query in (
                  "?status=active", "?email=no", "?phone=1", "?statu=ACTIVE", "?limit=0",
                  "?status=ACTIVE&status=ACTIVE",
                  "?email=a@example.com&phone=%2B447700900000", "?cursor=123", "?status=a%00b"):  # fmt: skip
        assert call(api, "GET", USERS + query).status_code == 400, query
    page = call(api, "GET", f"{USERS}?limit=1").get_json()
    for other in ("status=ACTIVE", "email=a@example.com"):
        assert call(api, "GET", f"{USERS}?{other}&cursor={page['next_cursor']}").status_code == 400


def test_a_bulk_stores_what_fits_and_names_what_does_not(api: Api, rows: Rows) -> None:
    """Each row stands alone. What is left out stays; a repeated id is refused the second time."""
    put(api, "old", ANA)
    sent = [
        {"id": "old", "attributes": {"plan": None, "x": 1}},
        {"id": "new", "email": "new@example.com"},
        {"id": "bad", "email": "nobody"},
        {"id": "new", "locale": "en"},
        {"id": "worse", "colour": "red"},
        "text",
    ]
    answer = call(api, "POST", f"{USERS}/bulk", {"users": sent})
    assert answer.status_code == 200
    body = answer.get_json()
    assert (body["created"], body["updated"], body["rejected"]) == (1, 1, 4)
    assert [(row["index"], row["id"], row["status"]) for row in body["results"]] == [
        (0, "old", "updated"), (1, "new", "created"), (2, "bad", "rejected"), (3, "new", "rejected"),
        (4, "worse", "rejected"), (5, None, "rejected"),
    ]  # fmt: skip
    codes = [row["error"] and row["error"]["code"] for row in body["results"]]
    assert codes[2:] == [
        "DOMAIN_RECIPIENT_INVALID", "DOMAIN_USER_REPEATED", "VALIDATION_BODY", "VALIDATION_BODY"
    ]  # fmt: skip
    assert call(api, "GET", f"{USERS}/old").get_json()["attributes"] == {"seats": 3, "x": 1}
    assert call(api, "GET", f"{USERS}/old").get_json()["phone"] == "+447700900000"
    assert [row.id for row in rows("SELECT id FROM app_user ORDER BY id")] == ["new", "old"]
    assert call(api, "POST", f"{USERS}/bulk", {"users": []}).status_code == 400
    assert call(api, "POST", f"{USERS}/bulk", {"users": [{"id": "a"}] * 1001}).status_code == 400


def test_a_bulk_may_be_larger_than_other_bodies_and_has_its_own_limit(make_api: Callable[..., Api]) -> None:
    """1,000 users with attributes do not fit into the usual limit."""
    api = make_api(api_max_body_bytes=10_000, api_bulk_max_body_bytes=200_000)
    users = [{"id": f"u{n}", "attributes": {"about": "x" * 100}} for n in range(1000)]
    assert call(api, "POST", f"{USERS}/bulk", {"users": users}).get_json()["created"] == 1000
    assert call(api, "PUT", f"{USERS}/a", {"attributes": {"about": "x" * 11_000}}).status_code == 413
    users[0]["attributes"] = {"about": "x" * 200_000}
    assert call(api, "POST", f"{USERS}/bulk", {"users": users}).status_code == 413


def test_attributes_do_not_grow_for_ever(api: Api) -> None:
    """Merging stops at the limit of what is stored: of one user, and of a row of a bulk, alone."""
    put(api, "ana", {})
    for n in range(4):
        grown = call(api, "PATCH", f"{USERS}/ana", {"attributes": {f"k{n}": "x" * 16_000}})
    assert grown.status_code == 200
    refused = call(api, "PATCH", f"{USERS}/ana", {"attributes": {"k9": "x" * 16_000}})
    assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_ATTRIBUTES_TOO_LARGE")
    sent = {"users": [{"id": "ana", "attributes": {"k9": "x" * 16_000}}, {"id": "bea"}]}
    body = call(api, "POST", f"{USERS}/bulk", sent).get_json()
    assert [row["status"] for row in body["results"]] == ["rejected", "created"]
    assert len(call(api, "GET", f"{USERS}/ana").get_json()["attributes"]) == 4


def test_recipients_of_a_notification_are_masked_like_addresses(api: Api) -> None:
    """Open for the user and for `recipients:read` only. Fails when the answer forgets who asks."""
    recipients = {"SMS": "+447700900123", "EMAIL": "ana@example.com", "PUSH": "sandbox:ok-0123456789"}
    made = api.post(sms(user_id="ana", channels=list(recipients), recipients=recipients))
    path = f"/v1/notifications/{made.get_json()['id']}"
    masked = {"SMS": "+44*****0123", "EMAIL": "a***@e***.com", "PUSH": "sand***6789"}
    read = "notifications:read"
    assert call(api, "GET", path, scope=read).get_json()["recipients"] == masked
    assert call(api, "GET", path, scope=f"{read} recipients:read").get_json()["recipients"] == recipients
    assert call(api, "GET", path, scope=read, user="ana").get_json()["recipients"] == recipients
