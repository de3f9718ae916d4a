"""The suppression list and unsubscribe links over the API."""

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Row

from app.domain.callers import Role
from app.wiring import unsubscribe_links
from tests.integration.api.conftest import Api, error_of

Rows = Callable[..., list[Row[Any]]]
LIST = "/v1/suppressions"
SCOPES = "suppressions:read suppressions:write"
FORM = {"List-Unsubscribe": "One-Click"}


def headers(api: Api, scope: str = SCOPES, **chosen: Any) -> dict[str, str]:
    return api.bearer(scope=scope, **chosen)


def add(api: Api, address: str, channel: str = "EMAIL", **chosen: Any) -> dict[str, Any]:
    body = {"channel": channel, "address": address} | chosen
    response = api.client.post(LIST, json=body, headers=headers(api))
    assert response.status_code == 201, response.text
    added: dict[str, Any] = response.get_json()
    return added


def listed(api: Api, query: str = "", scope: str = SCOPES, **chosen: Any) -> dict[str, Any]:
    response = api.client.get(LIST + query, headers=headers(api, scope, **chosen))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.get_json()
    return found


def test_an_address_is_suppressed_found_and_taken_off(api: Api, rows: Rows) -> None:
    """However it is spelt. The database holds neither the address nor anything to guess it by."""
    added = add(api, "Gone@EXAMPLE.com", reason="BOUNCE", note="mailbox full for a year")
    assert added["address"] == "G***@e***.com"
    assert (added["reason"], added["source"]) == ("BOUNCE", "api:tests")
    assert listed(api, "?channel=EMAIL&address=Gone@example.com")["data"] == [added]
    assert listed(api, "?channel=EMAIL&address=other@example.com")["data"] == []
    (stored,) = rows("SELECT suppression::text FROM suppression")
    assert "gone" not in stored[0].lower()
    clear = listed(api, scope=SCOPES + " recipients:read")["data"][0]
    assert clear["address"] == "Gone@example.com"
    path = f"{LIST}/{added['id']}"
    assert api.client.delete(path, headers=headers(api, tenant="other")).status_code == 404
    assert api.client.delete(path, headers=headers(api)).status_code == 204
    refused = api.client.delete(path, headers=headers(api))
    assert (refused.status_code, error_of(refused)["code"]) == (404, "DOMAIN_SUPPRESSION_NOT_FOUND")
    assert listed(api)["data"] == []


def test_of_two_reasons_the_weightier_one_stays(api: Api) -> None:
    """A complaint is not forgotten because the address bounces later; the entry stays one."""
    first = add(api, "+447700900001", "SMS", reason="BOUNCE")
    assert add(api, "+447700900001", "SMS", reason="COMPLAINT")["reason"] == "COMPLAINT"
    last = add(api, "+44 7700 900001", "SMS", reason="MANUAL")
    assert (last["id"], last["reason"]) == (first["id"], "COMPLAINT")
    assert len(listed(api)["data"]) == 1


def test_the_list_is_filtered_and_paged(api: Api) -> None:
    """Newest first, all of them once; a cursor belongs to its filter."""
    for number in range(5):
        add(api, f"+44770090000{number}", "SMS")
    add(api, "a@example.com", reason="OPT_OUT")
    found, cursor = [], ""
    while cursor is not None:
        page = listed(api, f"?limit=2&channel=SMS{cursor and '&cursor=' + cursor}")
        found += [each["address"] for each in page["data"]]
        cursor = page["next_cursor"]
    assert [text[-1] for text in found] == ["4", "3", "2", "1", "0"]
    assert [each["channel"] for each in listed(api, "?reason=OPT_OUT")["data"]] == ["EMAIL"]
    first = listed(api, "?limit=2&channel=SMS")["next_cursor"]
    for query in (f"?cursor={first}", "?channel=FAX", "?reason=X", "?address=a@example.com", "?x=1"):
        assert api.client.get(LIST + query, headers=headers(api)).status_code == 400, query


def test_who_may_not_is_refused(api: Api) -> None:
    """Scopes apart, and never a person's token: the list is about others too."""
    body = {"channel": "EMAIL", "address": "a@example.com"}
    assert api.client.post(LIST, json=body, headers=headers(api, "suppressions:read")).status_code == 403
    assert api.client.get(LIST, headers=headers(api, "suppressions:write")).status_code == 403
    assert api.client.get(LIST, headers=headers(api, role=Role.USER)).status_code == 403
    refused = api.client.post(LIST, json=body | {"address": "nobody"}, headers=headers(api))
    assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_RECIPIENT_INVALID")
    refused = api.client.post(LIST, json=body | {"channel": "IN_APP"}, headers=headers(api))
    assert refused.status_code == 400


def link(api: Api, user: str = "u1", category: str = "news") -> str:
    url = unsubscribe_links(api.settings).url("demo", user, category)
    assert url is not None
    assert url.startswith("http://127.0.0.1:8000/v1/unsubscribe/")
    return url.removeprefix("http://127.0.0.1:8000")


def chosen(rows: Rows) -> dict[str, Any]:
    return {row.user_id: row.choices for row in rows("SELECT user_id, choices FROM preference_set")}


def test_only_post_unsubscribes(api: Api, rows: Rows) -> None:
    """Case G21. GET and HEAD, as scanners do, change nothing; POST does, and again is harmless.

    Only the link's category is off, and only for e-mail; what else was chosen stays. Fails when GET has an effect.
    """
    preferences = api.bearer(scope="preferences:write preferences:read")
    body = {"choices": {"news": {"SMS": True}, "offers": {"EMAIL": True}}}
    assert api.client.put("/v1/users/u1/preferences", json=body, headers=preferences).status_code == 200
    path = link(api)
    before = chosen(rows)
    for query in ("", "?utm_source=mail"):
        page = api.client.get(path + query)
        assert (page.status_code, page.mimetype) == (200, "text/html")
        assert api.client.head(path + query).status_code == 200
    assert 'name="List-Unsubscribe" value="One-Click"' in page.text
    assert "script" not in page.text
    assert page.headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert chosen(rows) == before
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        done = api.client.post(path, data=FORM, content_type=kind)
        assert done.status_code == 200
        assert "Location" not in done.headers
        assert "Set-Cookie" not in done.headers
        assert chosen(rows) == {"u1": {"news": {"SMS": True, "EMAIL": False}, "offers": {"EMAIL": True}}}
    view = api.client.get("/v1/users/u1/preferences", headers=preferences).get_json()
    effects = {each["category"]: each["channels"]["EMAIL"] for each in view["effective"]}
    assert effects["news"]["rule"] == "user_category_channel"
    assert (effects["news"]["allowed"], effects["security"]["allowed"]) == (False, True)


def test_a_stranger_can_unsubscribe_too(api: Api, rows: Rows) -> None:
    """Somebody who is stored nowhere has choices all the same; strange names come back as they went in."""
    assert api.client.post(link(api, "ana@example.com", '<b>"&'), data=FORM).status_code == 200
    assert chosen(rows) == {"ana@example.com": {'<b>"&': {"EMAIL": False}}}
    assert "&lt;b&gt;" in api.client.get(link(api, "u", '<b>"&')).text


def test_a_post_without_the_form_changes_nothing(api: Api, rows: Rows) -> None:
    """What RFC 8058 does not say is not one click."""
    for data in ({}, {"List-Unsubscribe": "no"}, {"list-unsubscribe": "One-Click"}):
        refused = api.client.post(link(api), data=data)
        assert (refused.status_code, error_of(refused)["code"]) == (400, "VALIDATION_UNSUBSCRIBE")
    assert api.client.post(link(api), json=FORM).status_code == 400
    assert chosen(rows) == {}


def test_a_link_cannot_be_made_up_changed_or_read(api: Api, rows: Rows) -> None:
    """Every changed letter, a cut, an addition, a link of another secret: 404. It shows nothing of the person."""
    path = link(api, "ana@example.com")
    token = path.rpartition("/")[2]
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    strange = [token[:-1], token + "A", token + "=", "A" * 5000, "x", "%00", "é", token[::-1]]
    strange += [token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :] for n in range(len(token))]
    for each in strange:
        assert api.client.get(f"/v1/unsubscribe/{each}").status_code == 404, each
        assert api.client.post(f"/v1/unsubscribe/{each}", data=FORM).status_code == 404, each
    assert chosen(rows) == {}


def test_an_older_secret_still_opens_its_links(make_api: Callable[..., Api]) -> None:
    """Mails are read years later: a new secret is put before the old one."""
    old = make_api(unsubscribe_secrets="first")
    both, other = make_api(unsubscribe_secrets="second, first"), make_api(unsubscribe_secrets="second")
    assert both.client.post(link(old), data=FORM).status_code == 200
    assert other.client.post(link(both), data=FORM).status_code == 200
    assert other.client.post(link(old), data=FORM).status_code == 404
