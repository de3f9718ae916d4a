"""Notifications that name a template: refused or accepted with a version that stays, and rendered when sent."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from werkzeug.test import TestResponse

from app.domain.kinds import Channel, Priority
from app.services.accept.submission import Submission
from app.services.refusal import Refused
from app.wiring import api_services
from providers.base import Message
from providers.outcome import Accepted
from tests import delivery_rows
from tests.integration.api.conftest import PATH, Api, error_of
from tests.pipeline_parts import sql
from tests.user_rows import add_user
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider

ORDER: dict[str, Any] = {
    "default_locale": "en",
    "variables": [
        {"name": "name"},
        {"name": "total", "type": "number"},
        {"name": "at", "type": "datetime", "required": False},
        {"name": "note", "required": False},
    ],
    "bodies": {
        "en": {
            "SMS": {"text": "{{ name }}: {{ total|currency('EUR') }}{% if at %} at {{ at|time }}{% endif %}"},
            "EMAIL": {
                "subject": "Order of {{ name }}",
                "html": "<h1>{{ name }}</h1><script>x</script><p>{{ total }}</p>",
            },
            "IN_APP": {"title": "Order", "body": "{{ total|plural(one='# thing', other='# things') }}"},
        },
        "pt": {"SMS": {"text": "{{ name }}: {{ total|currency('EUR') }}"}},
    },
}
TO = {"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com"}


@pytest.fixture
def api(make_api: Callable[..., Api]) -> Api:
    """An API whose template `order` is kept."""
    made = make_api()
    assert keep(made).status_code == 201
    return made


def keep(api: Api, name: str = "order", **chosen: Any) -> TestResponse:
    headers = api.bearer(scope="templates:write")
    return api.app.test_client().put(f"/v1/templates/{name}", json=ORDER | chosen, headers=headers)


def order(**chosen: Any) -> dict[str, Any]:
    return {
        "user_id": "42",
        "category": "orders",
        "channels": ["SMS"],
        "template": "order",
        "payload": {"name": "Ana", "total": 5},
        "recipients": TO,
    } | chosen


def accepted(api: Api, **chosen: Any) -> dict[str, Any]:
    response = api.post(order(**chosen))
    assert response.status_code == 202, response.text
    shown: dict[str, Any] = api.read(response.get_json()["id"]).get_json()
    return shown


def live_in(engine: Engine, user: str, locale: str | None, zone: str) -> None:
    """Give a user a language and a zone."""
    sql(engine, "UPDATE app_user SET locale = %(l)s, time_zone = %(z)s WHERE id = %(u)s", l=locale, z=zone, u=user)


class Remembering(ScriptedProvider):
    """Remembers what it was asked to send."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        super().__init__(self._take)

    async def _take(self, message: Message) -> Accepted:
        self.messages.append(message)
        return Accepted("id")


def sent(run_worker: Any, engine: Engine, made: dict[str, Any]) -> dict[str, Message]:
    """Let a worker send a notification, and return the messages by channel."""
    provider = Remembering()
    with run_worker(provider) as running:
        for each in made["deliveries"]:
            if each["status"] == "PENDING":
                running.park([each["id"]], channel=Channel(each["channel"]), priority=Priority[made["priority"]])
        eventually(
            lambda: all(
                status in {"SENT", "DELIVERED"} for (status,) in sql(engine, "SELECT status FROM delivery")
            )
        )
    by_id = {each["id"]: each["channel"] for each in made["deliveries"]}
    return {by_id[message.reference]: message for message in provider.messages}


def test_the_worker_renders_each_channel_with_the_version_of_its_time(
    api: Api, run_worker: Any, engine: Engine
) -> None:
    """Accepted with version 1, sent with version 1, though there is a second by then and the template is archived.

    Fails when the worker takes the current version. The text for the inbox is stored; the others' are not.
    """
    made = accepted(api, channels=["SMS", "EMAIL", "IN_APP"], payload={"name": "<i>Ana", "total": 2})
    assert (made["template"], made["template_version"], made["locale"]) == ("order", 1, "en")
    assert made["content"] == {"title": "Order", "body": "2 things"}
    keep(api, bodies={"en": {"SMS": {"text": "changed"}}}, variables=[])
    api.client.delete("/v1/templates/order", headers=api.bearer(scope="templates:write"))
    messages = sent(run_worker, engine, made)
    assert messages["SMS"].body == "<i>Ana: €2.00"
    mail = messages["EMAIL"]
    assert mail.title == "Order of <i>Ana"
    assert mail.html == "<h1>&lt;i&gt;Ana</h1><p>2</p>"
    assert mail.body == "<i>Ana\n\n2"
    assert set(messages) == {"SMS", "EMAIL"}


@pytest.mark.parametrize(
    ("locale", "users", "body", "stored"),
    [
        ("pt-BR", "de", "Ana: €\xa05,00".replace("\xa0", " "), "pt-BR"),
        (None, "pt-BR", "Ana: € 5,00", "pt-BR"),
        (None, "en-GB", "Ana: €5.00 at 23:30", "en-GB"),
        ("fr", "pt", "Ana: €5.00 at 11:30 PM", "fr"),
        (None, None, "Ana: €5.00 at 11:30 PM", "en"),
        (None, "klingon", "Ana: €5.00 at 11:30 PM", "en"),
    ],
)
def test_a_reader_gets_their_language_and_their_zone(
    api: Api, run_worker: Any, engine: Engine, locale: str | None, users: str | None, body: str, stored: str
) -> None:
    """The language asked for, else the user's own, else the template's; times as in the user's zone."""
    add_user(engine, "42")
    live_in(engine, "42", users, "Europe/Lisbon")
    chosen = {"locale": locale} if locale else {}
    made = accepted(api, payload={"name": "Ana", "total": 5, "at": "2026-07-01T22:30:00Z"}, **chosen)
    assert made["locale"] == stored
    assert sent(run_worker, engine, made)["SMS"].body == body


@pytest.mark.parametrize(
    ("chosen", "code", "fields"),
    [
        ({"template": "none"}, "DOMAIN_TEMPLATE_NOT_FOUND", ["template"]),
        ({"payload": {}}, "DOMAIN_TEMPLATE_VARIABLES_MISSING", ["payload.name", "payload.total"]),
        ({"payload": {"name": None, "total": 1}}, "DOMAIN_TEMPLATE_VARIABLES_MISSING", ["payload.name"]),
        ({"payload": {"name": "A", "total": "5"}}, "DOMAIN_TEMPLATE_VARIABLES_INVALID", ["payload.total"]),
        ({"payload": {"name": "A", "total": 5, "at": "now"}}, "DOMAIN_TEMPLATE_VARIABLES_INVALID", ["payload.at"]),
        ({"channels": ["PUSH", "SMS"]}, "DOMAIN_TEMPLATE_CHANNEL_MISSING", ["channels"]),
        ({"locale": "xx-YY"}, "DOMAIN_LOCALE_UNKNOWN", ["locale"]),
        ({"payload": {"name": {"a": 1}, "total": 5}}, "DOMAIN_TEMPLATE_RENDERING", ["template.SMS"]),
        ({"payload": {"name": "x" * 10_001, "total": 5}}, "DOMAIN_TEMPLATE_RENDERING", ["template.SMS"]),
        (
            {"payload": {"name": "x" * 256, "total": 5}, "channels": ["SMS", "EMAIL"]},
            "DOMAIN_TEMPLATE_RENDERING",
            ["template.EMAIL"],
        ),
    ],
)
def test_what_cannot_be_rendered_is_refused_at_once(
    api: Api, engine: Engine, chosen: dict[str, Any], code: str, fields: list[str]
) -> None:
    """422 with every name; nothing is stored, and no delivery fails for it later."""
    response = api.post(order(**chosen))
    assert response.status_code == 422, response.text
    error = error_of(response)
    assert (error["code"], [each["field"] for each in error["details"]]) == (code, fields)
    assert sql(engine, "SELECT FROM notification") == []


def test_a_template_that_comes_to_nothing_is_refused(api: Api) -> None:
    """Case G17."""
    keep(api, "empty", bodies={"en": {"SMS": {"text": "{% if note %}Hello{% endif %}"}}})
    response = api.post(order(template="empty"))
    assert (response.status_code, error_of(response)["code"]) == (422, "DOMAIN_CONTENT_EMPTY")
    assert api.post(order(template="empty", payload={"name": "A", "total": 1, "note": "x"})).status_code == 202


def test_an_archived_template_is_not_found_until_it_is_back(api: Api) -> None:
    """The version that is current decides, at each request."""
    headers = api.bearer(scope="templates:write")
    api.client.delete("/v1/templates/order", headers=headers)
    assert error_of(api.post(order()))["code"] == "DOMAIN_TEMPLATE_NOT_FOUND"
    keep(api, bodies={"en": {"SMS": {"text": "two"}}}, variables=[])
    assert accepted(api)["content"]["body"] == "two"
    api.client.patch("/v1/templates/order", json={"current_version": 1}, headers=headers)
    assert accepted(api)["content"]["body"] == "Ana: €5.00"


def test_another_tenants_template_is_not_found(api: Api) -> None:
    """Fails when the look-up forgets whose template it is."""
    response = api.post(order(), tenant="other")
    assert (response.status_code, error_of(response)["code"]) == (422, "DOMAIN_TEMPLATE_NOT_FOUND")


def test_a_repeated_request_gets_the_answer_of_the_first(api: Api) -> None:
    """Though the template has changed or gone meanwhile: the first answer was a promise."""
    first = api.post(order(), key="k")
    api.client.delete("/v1/templates/order", headers=api.bearer(scope="templates:write"))
    again = api.post(order(), key="k")
    assert (again.status_code, again.data) == (202, first.data)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_what_a_notification_says_is_sealed(api: Api, engine: Engine) -> None:
    """Neither the payload nor what was made of it is in the table in the clear."""
    accepted(api, channels=["IN_APP"], payload={"name": "Grace Hopper", "total": 7})
    ((row, sealed),) = sql(engine, "SELECT notification::text, sealed FROM notification")
    for text in ("Hopper", "7 things"):
        assert text not in row
        assert text.encode() not in bytes(sealed)


def test_many_are_written_with_one_look_up(api: Api, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of two templates and of contents of its own; each has its version, language and text.

    Fails when each notification of a batch asks for its template.
    """
    keep(api, "second", bodies={"en": {"IN_APP": {"title": "t", "body": "{{ name }}"}}})
    add_user(engine, "pt")
    live_in(engine, "pt", "pt", "UTC")
    accept = api_services(api.settings).accept
    looks: list[int] = []
    run = accept._pool.run
    monkeypatch.setattr(accept._pool, "run", lambda work: looks.append(1) or run(work))
    asked = [("a", "order"), ("pt", "order"), ("b", "second"), ("c", None)]
    batch = [
        submission(
            user, template, Channel.IN_APP if template else Channel.SMS, {"name": f"n{number}", "total": number}
        )
        for number, (user, template) in enumerate(asked * 50)
    ]
    ids = accept.many("demo", batch)
    assert len(looks) == 3, "users, templates, and their versions the first time"
    assert api.read(ids[1]).get_json()["content"] == {"title": "Order", "body": "1 thing"}
    assert api.read(ids[1]).get_json()["locale"] == "pt"
    assert api.read(ids[6]).get_json()["content"] == {"title": "t", "body": "n6"}
    assert api.read(ids[7]).get_json()["template"] is None
    found = sql(engine, "SELECT template, template_version, count(*) FROM notification GROUP BY 1, 2 ORDER BY 1")
    assert [tuple(row) for row in found] == [("order", 1, 100), ("second", 1, 50), (None, None, 50)]
    with pytest.raises(Refused, match="needs values"):
        accept.many("demo", [submission("a", "order", Channel.SMS, {})])
    with pytest.raises(Refused, match="no such template"):
        accept.many("demo", [submission("a", "none", Channel.SMS, {})])


def submission(user: str, template: str | None, channel: Channel, payload: dict[str, Any]) -> Submission:
    return Submission(
        user_id=user,
        category="c",
        priority=Priority.LOW,
        channels=(channel,),
        title="",
        body="" if template else "own",
        recipients=TO,
        metadata={},
        payload=payload,
        template=template,
    )


def test_a_version_is_loaded_once_for_many_deliveries(api: Api, run_worker: Any, engine: Engine) -> None:
    """Two hundred rows of one template cost one look-up of it. Fails when each delivery loads its own."""
    accept = api_services(api.settings).accept
    accept.many("demo", [submission("a", "order", Channel.SMS, {"name": "n", "total": 1})] * 100)
    ids = [str(row[0]) for row in sql(engine, "SELECT id FROM delivery")]
    provider = Remembering()
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: delivery_rows.statuses(engine, ids) == {"SENT": 100})
        renderer = running.worker._renderer
        assert len(renderer._library._versions) == 1
        assert len(renderer._library._bodies) == 1
    assert {message.body for message in provider.messages} == {"n: €1.00"}


def test_a_payload_that_only_the_worker_finds_wrong_ends_its_delivery_alone(
    api: Api, run_worker: Any, engine: Engine
) -> None:
    """A batch is not rendered when it is accepted. One that cannot be is FAILED with a reason, the rest go out."""
    accept = api_services(api.settings).accept
    bad = submission("a", "order", Channel.SMS, {"name": "x" * 10_001, "total": 1})
    channels = (Channel.IN_APP, Channel.SMS)
    fields = {name: getattr(bad, name) for name in bad.__slots__} | {"channels": channels}
    good = submission("a", "order", Channel.SMS, {"name": "n", "total": 1})
    accept.many("demo", [Submission(**fields), good])
    ids = [str(row[0]) for row in sql(engine, "SELECT id FROM delivery WHERE channel = 'SMS' ORDER BY id")]
    provider = Remembering()
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: delivery_rows.statuses(engine, ids) == {"SENT": 1, "FAILED": 1})
    (failed,) = [row for id_ in ids if (row := delivery_rows.row(engine, id_))["status"] == "FAILED"]
    assert (failed["error_code"], failed["attempts"]) == ("render_limit", 0)
    assert "x" * 20 not in failed["last_error"]


def test_inline_html_is_cleaned_and_has_a_text_beside_it(api: Api, run_worker: Any, engine: Engine) -> None:
    """Case J13. Stored and sent clean, with a plain text made of it; for e-mail only."""
    html = "<p>Hi <a href='https://x.example'>Ana</a><img src=x onerror=alert(1)></p><script>1</script>"
    made = accepted(
        api, template=None, payload=None, channels=["EMAIL", "SMS"], content={"title": "t", "html": html}
    )
    clean = '<p>Hi <a href="https://x.example" rel="noopener noreferrer">Ana</a><img></p>'
    assert made["content"] == {"title": "t", "body": "Hi Ana (https://x.example)", "html": clean}
    messages = sent(run_worker, engine, made)
    assert (messages["EMAIL"].html, messages["EMAIL"].body) == (clean, "Hi Ana (https://x.example)")
    assert (messages["SMS"].html, messages["SMS"].body) == (None, "Hi Ana (https://x.example)")


@pytest.mark.parametrize(
    ("content", "channels", "status", "code"),
    [
        ({"title": "t", "html": "<p>x</p>"}, ["SMS"], 400, "VALIDATION_BODY"),
        ({"title": "t"}, ["EMAIL"], 400, "VALIDATION_BODY"),
        ({"title": "t", "html": ""}, ["EMAIL"], 400, "VALIDATION_BODY"),
        ({"title": "t", "html": "<p> </p>"}, ["EMAIL"], 422, "DOMAIN_CONTENT_EMPTY"),
        ({"title": "t", "html": "<script>x</script>"}, ["EMAIL"], 422, "DOMAIN_CONTENT_EMPTY"),
        ({"html": "<p>x</p>"}, ["EMAIL"], 422, "DOMAIN_CONTENT_EMPTY"),
        ({"title": "t", "html": "<div>" * 15_000}, ["EMAIL"], 422, "DOMAIN_CONTENT_INVALID"),
        ({"title": "t", "html": "x" * 100_001}, ["EMAIL"], 400, "VALIDATION_BODY"),
    ],
)
def test_html_that_shows_nothing_is_refused(
    api: Api, content: dict[str, Any], channels: list[str], status: int, code: str
) -> None:
    """Case G17. HTML that is only tags, or that no parser should have to read."""
    response = api.post(order(template=None, payload=None, channels=channels, content=content))
    assert (response.status_code, error_of(response)["code"]) == (status, code), response.text


def test_the_route_of_a_notification_shows_what_it_was_made_of(api: Api) -> None:
    """The OpenAPI document names template, version and language of a notification."""
    document = json.loads(api.client.get("/openapi.json").data)
    view = document["components"]["schemas"]["NotificationView"]["properties"]
    assert {"template", "template_version", "locale"} <= set(view)
    assert PATH in document["paths"]
