"""Categories, a tenant's defaults and people's preferences over the API: who may, and what comes of it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Row

from app.domain.callers import Role
from tests.integration.api.conftest import Api, error_of
from tests.user_rows import add_user

Rows = Callable[..., list[Row[Any]]]
SCOPES = "preferences:read preferences:write"
ME = "/v1/users/u1/preferences"


def headers(api: Api, tenant: str = "demo", **chosen: Any) -> dict[str, str]:
    return api.bearer(tenant, SCOPES, **chosen)


def put(api: Api, path: str, body: Any, **chosen: Any) -> Any:
    return api.client.put(path, json=body, headers=headers(api, **chosen))


def shown(api: Api, path: str = ME, **chosen: Any) -> dict[str, Any]:
    response = api.client.get(path, headers=headers(api, **chosen))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.get_json()
    return found


def effect(view: dict[str, Any], category: str, channel: str) -> dict[str, Any]:
    (found,) = [each for each in view["effective"] if each["category"] == category]
    one: dict[str, Any] = found["channels"][channel]
    return one


def test_whoever_chose_nothing_has_the_defaults(api: Api) -> None:
    """Also somebody who is stored nowhere. Marketing keeps quiet at night, security is mandatory."""
    view = shown(api)
    assert (view["choices"], view["quiet_hours"], view["time_zone"]) == ({}, None, "UTC")
    assert effect(view, "*", "SMS") == {
        "allowed": True,
        "rule": "default",
        "quiet_hours": None,
        "quiet_rule": "no_quiet_hours",
    }
    assert effect(view, "marketing", "PUSH")["quiet_hours"] == {"start": "22:00", "end": "08:00"}
    assert effect(view, "security", "SMS")["rule"] == "mandatory"


def test_preferences_are_replaced_changed_and_shown_with_their_effect(api: Api, engine: Any) -> None:
    """PUT takes the place of everything, PATCH changes what it names, null takes a word back."""
    add_user(engine, "u1", time_zone="Asia/Tokyo")
    body = {"choices": {"news": {"*": False, "EMAIL": True}, "*": {"SMS": False}}}
    response = put(api, ME, body)
    assert response.status_code == 200, response.text
    view = shown(api)
    assert view == response.get_json()
    assert (view["choices"], view["time_zone"]) == (body["choices"], "Asia/Tokyo")
    assert effect(view, "news", "EMAIL")["rule"] == "user_category_channel"
    assert effect(view, "news", "PUSH") | {"quiet_hours": 0, "quiet_rule": 0} == {
        "allowed": False,
        "rule": "user_category",
        "quiet_hours": 0,
        "quiet_rule": 0,
    }
    assert effect(view, "*", "SMS")["allowed"] is False
    patch = {
        "choices": {"news": {"EMAIL": None, "PUSH": True}, "*": None},
        "quiet_hours": {"start": "21:00", "end": "07:00"},
    }
    patched = api.client.patch(ME, json=patch, headers=headers(api)).get_json()
    assert patched["choices"] == {"news": {"*": False, "PUSH": True}}
    assert patched["quiet_hours"]["channels"] == ["PUSH", "SMS"]
    assert effect(patched, "*", "SMS")["quiet_hours"] == {"start": "21:00", "end": "07:00"}
    kept = api.client.patch(ME, json={"choices": {"a": {"SMS": False}}}, headers=headers(api)).get_json()
    assert kept["quiet_hours"] == patched["quiet_hours"]
    gone = api.client.patch(ME, json={"quiet_hours": None}, headers=headers(api)).get_json()
    assert gone["quiet_hours"] is None
    assert put(api, ME, {}).get_json()["choices"] == {}


def test_a_mandatory_category_cannot_be_switched_off(api: Api) -> None:
    """422 naming the field, for the built-in one and a declared one; switching it on is no fault."""
    assert put(api, "/v1/categories/bills", {"mandatory": True}).status_code == 200
    for category in ("security", "bills"):
        for verb in (api.client.put, api.client.patch):
            refused = verb(ME, json={"choices": {category: {"SMS": False}}}, headers=headers(api))
            assert refused.status_code == 422
            error = error_of(refused)
            assert (error["code"], error["details"][0]["field"]) == (
                "DOMAIN_CATEGORY_MANDATORY",
                f"choices.{category}.SMS",
            )
        assert put(api, ME, {"choices": {category: {"SMS": True}}}).status_code == 200
    assert shown(api)["choices"] == {"bills": {"SMS": True}}
    assert put(api, "/v1/categories/security", {"mandatory": False}).status_code == 200
    assert put(api, ME, {"choices": {"security": {"SMS": False}}}).status_code == 200


def test_a_person_has_only_their_own_preferences(api: Api) -> None:
    """A token of the role USER reads and writes its subject's, and declares nothing."""
    me = headers(api, role=Role.USER, subject="u1")
    assert api.client.put(ME, json={"choices": {"news": {"SMS": False}}}, headers=me).status_code == 200
    for method in ("GET", "PUT", "PATCH"):
        body = {} if method == "GET" else {"json": {}}
        refused = api.client.open("/v1/users/u2/preferences", method=method, headers=me, **body)
        assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_USER_MISMATCH")
    assert api.client.get("/v1/categories", headers=me).status_code == 200
    for path in ("/v1/categories/news", "/v1/tenant/defaults"):
        refused = api.client.put(path, json={}, headers=me)
        assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_ROLE_NOT_ALLOWED")
    reader = api.bearer("demo", "preferences:read")
    assert error_of(api.client.put(ME, json={}, headers=reader))["code"] == "AUTH_SCOPE_MISSING"


def test_tenants_do_not_see_each_other(api: Api, rows: Rows) -> None:
    """Neither preferences nor categories nor defaults. A raw query of the API's role finds nothing either."""
    assert put(api, ME, {"choices": {"news": {"SMS": False}}}).status_code == 200
    assert put(api, "/v1/categories/news", {"mandatory": True}).status_code == 200
    assert put(api, "/v1/tenant/defaults", {"time_zone": "Asia/Tokyo"}).status_code == 200
    other = shown(api, tenant="other")
    assert (other["choices"], other["time_zone"]) == ({}, "UTC")
    assert shown(api, "/v1/categories", tenant="other")["data"] == []
    for table in ("preference_set", "category_policy", "tenant_policy", "suppression"):
        (count,) = rows(
            "SET LOCAL ROLE arauto_api; SELECT set_config('arauto.tenant', 'other', true);"
            f" SELECT count(*) FROM {table}"
        )
        assert count[0] == 0


def test_categories_are_declared_listed_and_withdrawn(api: Api) -> None:
    """By name, in pages; one that is not declared is at our defaults."""
    names = ["a b", "alerts", "marketing", "news", "ünïcode", "z"]
    for name in names:
        body = {"channels": {"SMS": False}, "quiet_hours": {"EMAIL": True}}
        assert put(api, f"/v1/categories/{name}", body).status_code == 200
    found, cursor = [], ""
    while cursor is not None:
        page = shown(api, f"/v1/categories?limit=2{cursor and '&cursor=' + cursor}")
        found += [each["name"] for each in page["data"]]
        cursor = page["next_cursor"]
    assert sorted(found) == sorted(names)
    assert shown(api, "/v1/categories/marketing") == {
        "name": "marketing",
        "declared": True,
        "mandatory": False,
        "channels": {"SMS": False},
        "quiet_hours": {"PUSH": True, "SMS": True, "EMAIL": True},
    }
    assert effect(shown(api), "news", "SMS")["rule"] == "tenant_category_channel"
    for _ in range(2):
        assert api.client.delete("/v1/categories/news", headers=headers(api)).status_code == 204
    assert shown(api, "/v1/categories/news")["declared"] is False
    refused = api.client.get("/v1/categories?cursor=x", headers=headers(api))
    assert error_of(refused)["code"] == "VALIDATION_CURSOR"
    assert error_of(put(api, "/v1/categories/*", {}))["code"] == "VALIDATION_REQUEST"


def test_a_tenant_has_a_bounded_number_of_categories(api: Api, rows: Rows) -> None:
    """The worker keeps them in memory. One that is there already can still be changed."""
    rows("INSERT INTO category_policy (tenant_id, name) SELECT 'demo', 'c' || n FROM generate_series(1, 500) n")
    refused = put(api, "/v1/categories/one-more", {})
    assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_CATEGORY_LIMIT")
    assert put(api, "/v1/categories/c7", {"mandatory": True}).status_code == 200


def test_a_tenants_defaults_are_replaced_as_a_whole(api: Api) -> None:
    """What is left out is at our default again."""
    body = {
        "time_zone": "America/Sao_Paulo",
        "locale": "PT-br",
        "quiet_window": {"start": "21:00", "end": "09:00"},
        "channels": {"SMS": False},
        "quiet_hours": {"*": True},
    }
    assert put(api, "/v1/tenant/defaults", body).get_json() == body | {"locale": "pt-BR"}
    view = shown(api)
    assert view["time_zone"] == "America/Sao_Paulo"
    assert effect(view, "*", "SMS")["rule"] == "tenant_channel"
    assert effect(view, "*", "EMAIL")["quiet_hours"] == {"start": "21:00", "end": "09:00"}
    assert put(api, "/v1/tenant/defaults", {}).get_json()["time_zone"] == "UTC"


@pytest.mark.parametrize(
    "zone",
    [
        "http://x.example",
        "../../etc/passwd",
        "/etc/localtime",
        "",
        "leapseconds",
        "Mars/Phobos",
        "UTC+3",
        42,
        None,
    ],
)
def test_a_zone_that_is_none_is_an_error_of_the_request(api: Api, zone: Any) -> None:
    """Case E05. 422 naming the field for any text, 400 naming it for what is no text; never 500."""
    refused = put(api, "/v1/tenant/defaults", {"time_zone": zone})
    error = error_of(refused)
    assert (refused.status_code, error["code"]) == (
        (422, "DOMAIN_TIME_ZONE_UNKNOWN") if isinstance(zone, str) else (400, "VALIDATION_BODY")
    )
    assert error["details"][0]["field"] == "time_zone"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"quiet_hours": {"start": "22:00", "end": "22:00"}}, 422),
        ({"quiet_hours": {"start": "22:00"}}, 400),
        ({"quiet_hours": {"start": "25:00", "end": "07:00"}}, 400),
        ({"quiet_hours": {"start": "22:00\n", "end": "07:00"}}, 400),
        ({"quiet_hours": {"channels": ["FAX"]}}, 400),
        ({"choices": {"news": {"FAX": False}}}, 400),
        ({"choices": {"news": {"SMS": 1}}}, 400),
        ({"choices": {"": {"SMS": True}}}, 400),
        ({"choices": {"a\nb": {"SMS": True}}}, 400),
        ({"choices": {"x" * 65: {"SMS": True}}}, 400),
        ({"choices": {f"c{n}": {} for n in range(201)}}, 400),
        ({"choice": {}}, 400),
        ([], 400),
    ],
)
def test_what_is_no_preference_is_refused(api: Api, body: Any, status: int) -> None:
    """With a code of its own and nothing stored."""
    assert put(api, ME, body).status_code == status
    assert shown(api)["updated_at"] is None


def test_of_changes_at_the_same_time_none_is_lost(api: Api) -> None:
    """Eight at once, each about a category of its own. Fails when a change is written without its revision."""

    def change(number: int) -> int:
        body = {"choices": {f"c{number}": {"SMS": False}}}
        return int(api.app.test_client().patch(ME, json=body, headers=headers(api)).status_code)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(change, range(8)))
    assert set(answers) <= {200, 503}
    stored = shown(api)["choices"]
    assert {number for number, status in enumerate(answers) if status == 200} == {
        int(name.removeprefix("c")) for name in stored
    }
    assert answers.count(200) >= 5
