"""`/v1/templates`: versions that never change, faults by field and line, previews, and tenants kept apart."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Engine, Row
from sqlalchemy.exc import ProgrammingError
from werkzeug.test import TestResponse

from app.domain.callers import Role
from tests.integration.api.conftest import Api, error_of

Rows = Callable[..., list[Row[Any]]]

TEMPLATES = "/v1/templates"
OTP: dict[str, Any] = {
    "category": "security",
    "default_locale": "en",
    "variables": [
        {"name": "code", "type": "string"},
        {"name": "name", "type": "string", "required": False, "description": "How to call them."},
    ],
    "bodies": {
        "en": {
            "SMS": {"text": "{{ code }} is your code{% if name %}, {{ name }}{% endif %}."},
            "EMAIL": {"subject": "Your code", "html": "<p>Hi {{ name }}, it is <b>{{ code }}</b>.</p>"},
            "PUSH": {"title": "Your code", "body": "{{ code }}"},
        },
        "pt": {"SMS": {"text": "{{ code }} é o seu código."}},
    },
}


def headers(api: Api, tenant: str = "demo", **chosen: Any) -> dict[str, str]:
    return api.bearer(tenant, "templates:read templates:write", **chosen)


def put(api: Api, name: str = "otp", tenant: str = "demo", **chosen: Any) -> TestResponse:
    return api.app.test_client().put(f"{TEMPLATES}/{name}", json=OTP | chosen, headers=headers(api, tenant))


def get(api: Api, path: str = "", tenant: str = "demo") -> TestResponse:
    return api.client.get(f"{TEMPLATES}{path}", headers=headers(api, tenant))


def preview(api: Api, name: str = "otp", **body: Any) -> dict[str, Any]:
    response = api.client.post(f"{TEMPLATES}/{name}/preview", json=body, headers=headers(api))
    assert response.status_code == 200, response.text
    shown: dict[str, Any] = response.get_json()
    return shown


def say(text: str) -> dict[str, Any]:
    """Bodies that differ."""
    return {"bodies": {"en": {"SMS": {"text": text}}}, "variables": []}


def codes(shown: dict[str, Any]) -> set[tuple[str, str | None]]:
    return {(each["code"], each["channel"]) for each in shown["warnings"]}


def test_a_template_is_kept_in_versions(api: Api) -> None:
    """201 for a new content, 200 for the same again; each version stays readable as it was."""
    first = put(api)
    assert first.status_code == 201
    made = first.get_json()
    assert (made["name"], made["category"], made["current_version"]) == ("otp", "security", 1)
    assert made["version"]["created_by"] == "tests"
    assert made["version"]["variables"][1] == {
        "name": "name", "type": "string", "required": False, "description": "How to call them."
    }  # fmt: skip
    assert made["version"]["bodies"] == OTP["bodies"]
    again = put(api)
    assert (again.status_code, again.get_json()) == (200, made)
    assert put(api, **say("new")).get_json()["current_version"] == 2
    assert put(api).get_json()["latest_version"] == 3, "an earlier content is a new version too"
    assert get(api, "/otp").get_json()["version"]["number"] == 3
    assert get(api, "/otp/versions/1").get_json() == made["version"]
    assert get(api, "/otp/versions/2").get_json()["bodies"] == {"en": {"SMS": {"text": "new"}}}
    assert [each["number"] for each in get(api, "/otp/versions").get_json()["data"]] == [3, 2, 1]
    for missing in ("/otp/versions/4", "/otp/versions/0", "/otp/versions/x", "/otp/versions/99999999999"):
        response = get(api, missing)
        assert (response.status_code, error_of(response)["code"]) == (404, "DOMAIN_TEMPLATE_VERSION_NOT_FOUND")


def test_an_earlier_version_can_be_chosen_again(api: Api) -> None:
    """Going back changes what is current and nothing else."""
    for text in ("one", "two", "three"):
        put(api, **say(text))

    def choose(number: Any) -> TestResponse:
        return api.client.patch(f"{TEMPLATES}/otp", json={"current_version": number}, headers=headers(api))

    chosen = choose(1).get_json()
    assert (chosen["current_version"], chosen["latest_version"]) == (1, 3)
    assert chosen["version"]["bodies"]["en"]["SMS"]["text"] == "one"
    assert put(api, **say("one")).status_code == 200, "it is what is current now"
    assert put(api, **say("four")).get_json()["current_version"] == 4
    assert error_of(choose(9))["code"] == "DOMAIN_TEMPLATE_VERSION_NOT_FOUND"
    for bad in (0, "1", None, 2**40):
        assert choose(bad).status_code == 400
    response = api.client.patch(f"{TEMPLATES}/none", json={"current_version": 1}, headers=headers(api))
    assert (response.status_code, error_of(response)["code"]) == (404, "DOMAIN_TEMPLATE_UNKNOWN")


def test_an_archived_template_is_out_of_the_list_and_can_come_back(api: Api) -> None:
    """204, and again 204; it is still there to be read, and a new version takes it into use."""
    put(api)
    for _ in range(2):
        assert api.client.delete(f"{TEMPLATES}/otp", headers=headers(api)).status_code == 204
    assert get(api).get_json()["data"] == []
    (archived,) = get(api, "?archived=true").get_json()["data"]
    assert archived["archived_at"] is not None
    assert archived["locales"] == ["en", "pt"]
    assert get(api, "/otp").status_code == 200
    assert put(api).get_json()["archived_at"] is None
    assert len(get(api).get_json()["data"]) == 1
    assert api.client.delete(f"{TEMPLATES}/none", headers=headers(api)).status_code == 404
    assert get(api, "?archived=yes").status_code == 400


def test_of_many_that_keep_the_same_one_makes_a_version(api: Api) -> None:
    """Eight at once, of two contents: each content once a turn, no number twice, no 5xx.

    Fails when the digest is compared with what the statement saw before it waited for the row.
    """
    put(api, **say("start"))
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: put(api, **say("same")), range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert {answer.get_json()["current_version"] for answer in answers} == {2}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: put(api, **say(f"text {number}")), range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert sorted(answer.get_json()["version"]["number"] for answer in answers) == list(range(3, 11))


@pytest.mark.parametrize(
    ("chosen", "field", "message"),
    [
        (say("a\nb {{ x|foo }}"), "bodies.en.SMS.text", "line 2: unknown filter 'foo'"),
        (say("{{ x }}"), "bodies.en.SMS.text", "line 1: the variable 'x' is not declared"),
        (say("{% if %}"), "bodies.en.SMS.text", "line 1: expected an expression"),
        (say("{{ ''.__class__ }}"), "bodies.en.SMS.text", "not offered"),
        ({"bodies": {"xx-YY": OTP["bodies"]["en"], "en": OTP["bodies"]["en"]}}, "bodies.xx-YY", "no language"),
        ({"default_locale": "zz-ZZ"}, "default_locale", "no language"),
        ({"default_locale": "de"}, "default_locale", "there are no bodies in de"),
        ({"default_locale": "pt"}, "bodies.en.EMAIL", "missing in the default language pt"),
        (
            {"variables": [{"name": "code"}, {"name": "code"}, {"name": "name"}]},
            "variables.0.name",
            "declared twice",
        ),
        ({"variables": [{"name": "loop"}]}, "variables.0.name", "must be a name"),
        ({"variables": [{"name": "a b"}]}, "variables.0.name", "must be a name"),
        ({"bodies": {"en": OTP["bodies"]["en"], "EN": OTP["bodies"]["en"]}}, "bodies.en", "a second time"),
    ],
)
def test_what_cannot_be_kept_is_named_by_field_and_line(
    api: Api, rows: Rows, chosen: dict[str, Any], field: str, message: str
) -> None:
    """422, and nothing is stored."""
    response = put(api, **chosen)
    assert response.status_code == 422, response.text
    error = error_of(response)
    assert error["code"] == "DOMAIN_TEMPLATE_INVALID"
    assert any(each["field"] == field and message in each["message"] for each in error["details"]), error
    assert rows("SELECT FROM template") == []


@pytest.mark.parametrize(
    "chosen",
    [
        {"bodies": {}},
        {"bodies": {"en": {}}},
        {"bodies": {"en": {"FAX": {"text": "x"}}}},
        {"bodies": {"en": {"EMAIL": {"subject": "x"}}}},
        {"bodies": {"en": {"EMAIL": {"text": "x"}}}},
        {"bodies": {"en": {"SMS": {"text": ""}}}},
        {"bodies": {"en": {"SMS": {"text": "x", "title": "y"}}}},
        {"bodies": {"en": {"SMS": {"text": "x" * 70_000}}}},
        {"variables": [{"name": "x", "type": "money"}]},
        {"variables": [{"name": "x", "required": "yes"}]},
        {"category": "a\nb"},
        {"default_locale": None},
        {"surprise": 1},
    ],
)
def test_a_body_that_does_not_fit_is_400(api: Api, chosen: dict[str, Any]) -> None:
    """Unknown channels, parts and types; what a channel needs and has not."""
    response = put(api, **chosen)
    assert (response.status_code, error_of(response)["code"]) == (400, "VALIDATION_BODY")


def test_a_name_is_part_of_an_address(api: Api) -> None:
    """400 where one would be made, 404 where one is looked for."""
    for name in ("-x", "a b", "a%00b", "x" * 129, "é", ".hidden"):
        assert put(api, name).status_code == 400, name
        assert get(api, f"/{name}").status_code == 404
    assert put(api, "Order.shipped_2-b").status_code == 201


def test_language_tags_are_kept_in_their_usual_form(api: Api) -> None:
    """`PT_br` is `pt-BR`."""
    bodies = {"PT_br": {"SMS": {"text": "oi"}}, "zh-hant": {"SMS": {"text": "x"}}}
    made = put(api, bodies=bodies, default_locale="pt-br", variables=[]).get_json()
    assert set(made["version"]["bodies"]) == {"pt-BR", "zh-Hant"}
    assert made["version"]["default_locale"] == "pt-BR"


def test_a_preview_shows_each_channel(api: Api) -> None:
    """With a plain text beside the HTML, the SMS's segments and the push's bytes."""
    put(api)
    shown = preview(api, locale="pt-BR", payload={"code": "123456", "name": "<b>"})
    assert shown["locale"] == "pt-BR"
    assert shown["version"] == 1
    assert shown["channels"]["SMS"] == {
        "locale": "pt", "title": "", "body": "123456 é o seu código.",
        "segments": {"alphabet": "UCS-2", "units": 22, "count": 1},
    }  # fmt: skip
    assert shown["channels"]["EMAIL"] == {
        "locale": "en", "title": "Your code", "body": "Hi <b>, it is 123456.",
        "html": "<p>Hi &lt;b&gt;, it is <b>123456</b>.</p>",
    }  # fmt: skip
    assert shown["channels"]["PUSH"]["bytes"] < 100
    assert codes(shown) == {("LOCALE_FALLBACK", each) for each in ("SMS", "EMAIL", "PUSH")} | {
        ("SMS_ALPHABET", "SMS")
    }, "ó is no letter of GSM-7"
    assert preview(api, locale="en", payload={"code": "1", "name": "A"})["warnings"] == []
    put(api, **say("v2"))
    assert preview(api, version=1)["channels"]["SMS"]["body"] == "[code] is your code."
    assert preview(api)["channels"]["SMS"]["body"] == "v2"


def test_a_preview_warns_before_it_costs(api: Api) -> None:
    """Case H09. What an SMS costs, what a push cannot carry, what cleaning takes out, what has no value."""
    draft = {
        "default_locale": "en",
        "variables": [{"name": "n", "type": "number"}, {"name": "x", "required": False}],
        "bodies": {
            "en": {
                "SMS": {"text": "a" * 69 + "中" + "{{ x }}"},
                "PUSH": {"title": "t", "body": "é" * 3_000},
                "EMAIL": {"subject": "s", "html": "<p onclick='x'>{{ n|currency('EUR') }}</p>"},
                "IN_APP": {"title": "t", "body": "{{ x.y }}"},
            }
        },
    }
    shown = preview(api, "not-kept", template=draft, payload={"x": "b"})
    assert shown["version"] is None
    assert codes(shown) == {
        ("VARIABLE_MISSING", None), ("SMS_SEGMENTS", "SMS"), ("SMS_ALPHABET", "SMS"), ("PUSH_TOO_LARGE", "PUSH"),
        ("HTML_CHANGED", "EMAIL"), ("RENDERING_FAILED", "IN_APP"),
    }  # fmt: skip
    assert shown["channels"]["SMS"]["segments"] == {"alphabet": "UCS-2", "units": 71, "count": 2}
    assert shown["channels"]["EMAIL"]["html"] == "<p>€0.00</p>"
    assert shown["channels"]["IN_APP"]["body"] is None
    assert codes(preview(api, "x", template=draft, payload={"n": "1"})) >= {("VARIABLE_MISFIT", None)}


def test_a_preview_is_in_the_readers_zone(api: Api) -> None:
    """The day is another one there."""
    put(
        api,
        bodies={"en": {"SMS": {"text": "{{ t|datetime('short') }}"}}},
        variables=[{"name": "t", "type": "datetime"}],
    )
    payload = {"t": "2026-07-01T22:30:00Z"}
    assert preview(api, payload=payload, time_zone="Asia/Tokyo")["channels"]["SMS"]["body"] == "7/2/26, 7:30 AM"
    for body, code in (
        ({"time_zone": "Mars/Olympus"}, "DOMAIN_TIME_ZONE_UNKNOWN"),
        ({"time_zone": "../../etc/passwd"}, "DOMAIN_TIME_ZONE_UNKNOWN"),
        ({"locale": "xx-YY"}, "DOMAIN_LOCALE_UNKNOWN"),
        ({"template": OTP | {"default_locale": "de"}}, "VALIDATION_BODY"),
        ({"version": 1, "template": {"default_locale": "en", "bodies": OTP["bodies"]}}, "VALIDATION_BODY"),
        ({"template": {"default_locale": "de", "bodies": OTP["bodies"]}}, "DOMAIN_TEMPLATE_INVALID"),
        ({"version": 7}, "DOMAIN_TEMPLATE_VERSION_NOT_FOUND"),
    ):
        response = api.client.post(f"{TEMPLATES}/otp/preview", json=body, headers=headers(api))
        assert error_of(response)["code"] == code, body


def test_a_list_shows_every_template_once(api: Api, rows: Rows) -> None:
    """Pages by name; a cursor of another list or tenant is refused."""
    put(api, "other", tenant="other")
    names = sorted(f"t{number}" for number in range(25))
    for name in names:
        assert put(api, name, **say(name)).status_code == 201
    first = get(api).get_json()
    second = get(api, f"?cursor={first['next_cursor']}").get_json()
    assert [each["name"] for each in first["data"] + second["data"]] == names
    assert second["next_cursor"] is None
    assert get(api, f"?archived=true&cursor={first['next_cursor']}").status_code == 400
    assert get(api, f"?cursor={first['next_cursor']}", tenant="other").status_code == 400
    for text in ("two", "three", "four"):
        put(api, "t1", **say(text))
    page = get(api, "/t1/versions?limit=3").get_json()
    rest = get(api, f"/t1/versions?limit=3&cursor={page['next_cursor']}").get_json()
    assert [each["number"] for each in page["data"] + rest["data"]] == [4, 3, 2, 1]
    assert get(api, f"/t2/versions?cursor={page['next_cursor']}").status_code == 400
    assert get(api, "/none/versions").status_code == 404
    assert get(api, "?limit=0").status_code == get(api, "?x=1").status_code == 400


def test_scopes_and_roles(api: Api) -> None:
    """Reading and writing are apart, and a person's token does neither."""
    reader = api.bearer(scope="templates:read")
    assert api.client.put(f"{TEMPLATES}/otp", json=OTP, headers=reader).status_code == 403
    assert api.client.get(TEMPLATES, headers=reader).status_code == 200
    assert api.client.get(TEMPLATES, headers=api.bearer(scope="templates:write")).status_code == 403
    response = api.client.get(TEMPLATES, headers=headers(api, role=Role.USER))
    assert error_of(response)["code"] == "AUTH_ROLE_NOT_ALLOWED"


def test_a_template_of_another_tenant_does_not_exist(api: Api, engine: Engine) -> None:
    """Two tenants have a template of one name, each its own; the database itself keeps them apart.

    Fails without the policies: there is no WHERE in the last queries.
    """
    put(api, "mine")
    put(api, "both")
    put(api, "both", tenant="other", **say("theirs"))
    assert get(api, "/mine", tenant="other").status_code == 404
    assert api.client.delete(f"{TEMPLATES}/mine", headers=headers(api, "other")).status_code == 404
    assert get(api, "/both").get_json()["version"]["bodies"] == OTP["bodies"]
    for table in ("template", "template_version"):
        for tenant, seen in (("demo", 2), ("other", 1), ("", 0)):
            with engine.begin() as connection:
                connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
                connection.exec_driver_sql(
                    "SELECT set_config('arauto.tenant', %(tenant)s, true)", {"tenant": tenant}
                )
                assert len(list(connection.exec_driver_sql(f"SELECT FROM {table}"))) == seen


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE template_version SET bodies = '{}'",
        "DELETE FROM template_version",
        "DELETE FROM template",
        "UPDATE template SET name = 'x'",
        "UPDATE template SET tenant_id = 'other'",
        """INSERT INTO template (tenant_id, name, current_version, latest_version, digest)
           VALUES ('other', 'x', 1, 1, 'x')""",
    ],
)
def test_the_role_of_the_api_cannot_change_a_version(api: Api, engine: Engine, statement: str) -> None:
    """What was accepted with a version is sent with it. Fails when the role gets more than it needs."""
    put(api)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
        connection.exec_driver_sql("SELECT set_config('arauto.tenant', 'demo', true)")
        with pytest.raises(ProgrammingError, match=r"permission denied|row-level security"):
            connection.exec_driver_sql(statement)
