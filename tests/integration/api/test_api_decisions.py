"""What an accept decides: switched-off channels, suppressed addresses, quiet hours, local times; and explain.

Quiet hours are asked for around the present moment, so that no test waits for the night.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Engine, Row

from app import wiring_worker
from app.domain.callers import Role
from app.domain.kinds import Channel, Priority
from app.services.accept.submission import Submission
from app.wiring import api_services
from tests.integration.api.conftest import Api, error_of, sms
from tests.user_rows import add_device, add_user

Rows = Callable[..., list[Row[Any]]]
BERLIN = "Europe/Berlin"


def write(api: Api, path: str, body: dict[str, Any]) -> None:
    scope = "preferences:write suppressions:write"
    call = api.client.post if path.endswith("suppressions") else api.client.put
    response = call(path, json=body, headers=api.bearer(scope=scope))
    assert response.status_code < 300, response.text


def choose(api: Api, choices: dict[str, Any], **more: Any) -> None:
    write(api, "/v1/users/u1/preferences", {"choices": choices} | more)


def around_now(hours: int = 1) -> dict[str, str]:
    """Quiet hours in UTC that hold now and for about `hours` more."""
    now = datetime.now(UTC)
    return {"start": f"{now - timedelta(hours=1):%H:%M}", "end": f"{now + timedelta(hours=hours):%H:%M}"}


def accepted(api: Api, **chosen: Any) -> dict[str, Any]:
    response = api.post(sms(**{"category": "news"} | chosen))
    assert response.status_code == 202, response.text
    body: dict[str, Any] = response.get_json()
    return body


def explained(api: Api, **chosen: Any) -> dict[str, Any]:
    response = api.client.post("/v1/explain", json=sms(**{"category": "news"} | chosen), headers=api.bearer())
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.get_json()
    return body


def test_a_channel_that_is_off_makes_no_row_and_is_named(api: Api, rows: Rows) -> None:
    """The others go. The record says which rule decided, and GET shows it."""
    choose(api, {"news": {"SMS": False}})
    body = accepted(api, channels=["SMS", "IN_APP"])
    assert [each["channel"] for each in body["deliveries"]] == ["IN_APP"]
    assert body["suppressed"] == [{"channel": "SMS", "reason": "preference_off"}]
    assert [row.channel for row in rows("SELECT channel FROM delivery")] == ["IN_APP"]
    shown = api.read(body["id"]).get_json()
    assert shown["decision"] == [
        {"channel": "SMS", "verdict": "suppress", "reason": "preference_off", "rule": "user_category_channel"},
        {"channel": "IN_APP", "verdict": "send", "rule": "default"},
    ]


def test_a_notification_without_any_channel_left_is_suppressed(api: Api, rows: Rows) -> None:
    """202 with status SUPPRESSED, and no row at all. The same key gets the same answer after a change of mind."""
    choose(api, {"*": {"*": False}})
    first = api.post(sms(category="news"), key="k")
    assert (first.status_code, first.get_json()["status"]) == (202, "SUPPRESSED")
    assert rows("SELECT FROM delivery") == []
    choose(api, {})
    assert api.post(sms(category="news"), key="k").get_json() == first.get_json()


def test_a_mandatory_category_goes_whatever_was_chosen(api: Api) -> None:
    """Through switches and quiet hours, but not to a suppressed address."""
    choose(api, {"*": {"*": False}}, quiet_hours=around_now())
    body = accepted(api, category="security")
    assert (body["suppressed"], body["deliveries"][0]["status"]) == ([], "PENDING")
    assert api.read(body["id"]).get_json()["decision"][0]["rule"] == "mandatory"
    write(api, "/v1/suppressions", {"channel": "SMS", "address": "+447700900000"})
    assert accepted(api, category="security")["suppressed"] == [{"channel": "SMS", "reason": "address_suppressed"}]


def test_the_tenants_defaults_count_where_the_person_said_nothing(api: Api) -> None:
    """Off by the category's default, on again by the person's word."""
    write(api, "/v1/categories/news", {"channels": {"SMS": False}})
    assert accepted(api)["status"] == "SUPPRESSED"
    choose(api, {"*": {"SMS": True}})
    assert accepted(api)["status"] == "ACCEPTED"


def test_suppressed_addresses_get_nothing(api: Api, engine: Engine) -> None:
    """Explicit or stored, each device for itself; the list belongs to one tenant and one channel."""
    add_user(engine, "u1", email="ana@example.com", phone="+447700900001")
    add_device(engine, "u1", "token-one")
    add_device(engine, "u1", "token-two")
    for channel, address in (("EMAIL", "ana@EXAMPLE.com"), ("SMS", "+447700900001"), ("PUSH", "token-one")):
        write(api, "/v1/suppressions", {"channel": channel, "address": address})
    body = accepted(api, channels=["EMAIL", "SMS", "PUSH"], recipients={})
    assert [each["channel"] for each in body["deliveries"]] == ["PUSH"]
    assert {each["reason"] for each in body["suppressed"]} == {"address_suppressed"}
    write(api, "/v1/suppressions", {"channel": "PUSH", "address": "token-two"})
    assert accepted(api, channels=["PUSH"], recipients={})["status"] == "SUPPRESSED"
    assert accepted(api, recipients={"SMS": "+44 7700 900001"})["status"] == "SUPPRESSED"
    assert accepted(api, recipients={"SMS": "+447700900009"})["status"] == "ACCEPTED"
    other = api.post(sms(recipients={"SMS": "+447700900001"}), tenant="other")
    assert other.get_json()["status"] == "ACCEPTED"


def test_quiet_hours_hold_a_message_until_they_end(api: Api, rows: Rows) -> None:
    """Held and not dropped, with its share of the spread, never before the end; HIGH goes at once."""
    quiet = around_now()
    choose(api, {}, quiet_hours=quiet)
    for number in range(8):
        accepted(api, recipients={"SMS": f"+44770090010{number}"})
    high = accepted(api, priority="HIGH")
    decision = api.read(high["id"]).get_json()["decision"]
    assert decision == [{"channel": "SMS", "verdict": "send", "rule": "default"}]
    waiting = rows("SELECT id, next_attempt_at, relay_at, error_code FROM delivery WHERE priority = 1 ORDER BY id")
    held = api.read(accepted(api)["id"]).get_json()
    until = datetime.fromisoformat(held["decision"][0]["until"])
    assert f"{until:%H:%M}" == quiet["end"]
    assert (held["decision"][0]["verdict"], held["decision"][0]["rule"]) == ("hold", "user_quiet_hours")
    assert held["deliveries"][0]["error_code"] == "quiet_hours"
    for row in waiting:
        assert until <= row.next_attempt_at < until + timedelta(seconds=600)
        assert row.relay_at == row.next_attempt_at
        assert row.error_code == "quiet_hours"
    assert len({row.next_attempt_at for row in waiting}) == len(waiting)
    (due,) = rows("SELECT next_attempt_at <= now() AS is_due FROM delivery WHERE priority = 0")
    assert due.is_due


def test_the_nearest_zone_counts(api: Api, engine: Engine) -> None:
    """Device before user before tenant. Each has another time of day, and only one of them is night."""
    now = datetime.now(UTC)
    window = {"start": f"{now - timedelta(hours=1):%H:%M}", "end": f"{now + timedelta(hours=1):%H:%M}"}
    write(
        api, "/v1/tenant/defaults", {"time_zone": "Etc/GMT-6", "quiet_window": window, "quiet_hours": {"*": True}}
    )
    assert explained(api)["channels"][0]["verdict"] == "send"
    add_user(engine, "u1", phone="+447700900001", time_zone="Etc/UTC")
    assert explained(api)["channels"][0] | {"until": 0, "at": 0} == {
        "channel": "SMS",
        "verdict": "hold",
        "rule": "tenant_quiet_hours",
        "until": 0,
        "time_zone": "Etc/UTC",
        "provider": "http-sms",
        "at": 0,
        "will_expire": False,
    }
    device = add_device(engine, "u1", "token")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE device SET time_zone = 'Etc/GMT+6'")
    (push,) = explained(api, channels=["PUSH"], recipients={})["channels"]
    assert (push["verdict"], push["device_id"]) == ("send", str(device))


def test_what_can_only_go_in_quiet_hours_says_so(api: Api, rows: Rows) -> None:
    """Case E13. Its deadline comes before the morning: it waits, is never sent, and expires with the reason."""
    choose(api, {}, quiet_hours=around_now(hours=3))
    assert explained(api, expires_in=60)["channels"][0]["will_expire"] is True
    body = accepted(api, expires_in=60)
    (row,) = rows("SELECT next_attempt_at > expires_at AS is_late, status, error_code FROM delivery")
    assert (row.is_late, row.status, row.error_code) == (True, "PENDING", "quiet_hours")
    assert body["deliveries"][0]["status"] == "PENDING"
    assert explained(api, expires_in=60, priority="HIGH")["channels"][0]["will_expire"] is False


@pytest.mark.parametrize(
    ("at", "zone", "expected"),
    [("02:30:00", BERLIN, "01:00"), ("03:00:00", BERLIN, "01:00"), ("12:00", "Asia/Tokyo", "03:00")],
)
def test_a_local_time_is_resolved_and_shown(api: Api, at: str, zone: str, expected: str) -> None:
    """Case E01. A time in the gap of 28 March 2027 is the first instant after it: no error, and no day late."""
    body = sms(scheduled_local={"at": f"2027-03-28T{at}", "time_zone": zone})
    allowed = Api(api.app, api.settings)
    api_services(api.settings).accept._deciding._horizon = timedelta(days=3650)
    shown = allowed.read(allowed.post(body).get_json()["id"]).get_json()
    assert shown["scheduled_at"] == f"2027-03-28T{expected}:00.000Z"
    assert shown["scheduled_local"]["time_zone"] == zone


def test_a_local_time_without_a_zone_is_the_users_own(api: Api, engine: Engine) -> None:
    """Three users in three zones get it at nine in the morning of theirs."""
    for user, zone in (("a", "Asia/Tokyo"), ("b", "America/Sao_Paulo"), ("c", None)):
        add_user(engine, user, phone="+447700900001", time_zone=zone)
    write(api, "/v1/tenant/defaults", {"time_zone": "Asia/Dubai"})
    day = (datetime.now(UTC) + timedelta(days=20)).date()
    found = {
        user: api.read(accepted(api, user_id=user, scheduled_local={"at": f"{day}T09:00"})["id"]).get_json()
        for user in ("a", "b", "c")
    }
    assert {user: shown["scheduled_at"][11:16] for user, shown in found.items()} == {
        "a": "00:00",
        "b": "12:00",
        "c": "05:00",
    }
    assert found["c"]["scheduled_local"] == {"at": f"{day}T09:00:00", "time_zone": "Asia/Dubai"}


@pytest.mark.parametrize(
    ("local", "status"),
    [
        ({"at": "2026-12-24T09:00", "time_zone": "../../etc/passwd"}, 422),
        ({"at": "2026-12-24T09:00", "time_zone": 42}, 400),
        ({"at": "2026-12-24T09:00Z"}, 400),
        ({"at": "2026-02-30T09:00"}, 400),
        ({"at": "0001-01-01T00:00", "time_zone": "Asia/Tokyo"}, 400),
        ({"at": "9999-12-31T23:59", "time_zone": "America/Sao_Paulo"}, 400),
        ({"at": "9998-12-31T23:59", "time_zone": "America/Sao_Paulo"}, 422),
        ({"at": "1970-01-01T00:00", "time_zone": "Asia/Tokyo"}, 202),
        ({}, 400),
    ],
)
def test_what_is_no_local_time_is_refused(api: Api, local: dict[str, Any], status: int) -> None:
    """Case E05 in part. Naming the field, and never with a 5xx, to the ends of the calendar."""
    response = api.post(sms(scheduled_local=local))
    assert response.status_code == status, response.text
    if status != 202:
        assert error_of(response)["details"][0]["field"].startswith("scheduled_")
    both = api.post(sms(scheduled_local={"at": "2026-12-24T09:00"}, scheduled_at="2026-12-24T09:00:00Z"))
    assert both.status_code == 400


def test_explain_has_no_effect_and_says_what_accept_does(api: Api, rows: Rows, engine: Engine) -> None:
    """The record is the one that a real notification keeps. A person explains only their own."""
    add_user(engine, "u1", phone="+447700900001", email="a@example.com")
    choose(api, {"news": {"EMAIL": False}}, quiet_hours=around_now())
    body = {"channels": ["SMS", "EMAIL", "IN_APP"], "recipients": {}}
    found = explained(api, **body)
    assert rows("SELECT FROM notification") == rows("SELECT FROM idempotency_key") == []
    real = api.read(accepted(api, **body)["id"]).get_json()
    extra = {"provider", "at", "will_expire"}
    assert [{k: v for k, v in each.items() if k not in extra} for each in found["channels"]] == real["decision"]
    assert [each["provider"] for each in found["channels"]] == ["http-sms", None, "in-app"]
    assert found["status"] == "ACCEPTED"
    me = api.bearer(role=Role.USER, subject="u2")
    assert error_of(api.client.post("/v1/explain", json=sms(), headers=me))["code"] == "AUTH_USER_MISMATCH"
    refused = api.client.post("/v1/explain", json=sms(user_id="x", recipients={}), headers=api.bearer())
    assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_USER_NOT_FOUND")


def test_the_settings_name_the_providers_that_the_worker_loads(make_settings: Callable[..., Any]) -> None:
    """Explain loads no adapter, so the names are in two places."""
    urls = {"email_provider_url": "null://", "push_provider_url": "null://"}
    for settings in (
        make_settings(redis_url="redis://x", kafka_bootstrap_servers="x", database_url="postgresql://x/y"),
        make_settings(redis_url="redis://x", kafka_bootstrap_servers="x", database_url="postgresql://x/y", **urls),
    ):
        for channel in Channel:
            assert settings.provider_name(channel) == wiring_worker.provider(settings, channel).name


def test_many_are_decided_like_one(api: Api, rows: Rows, engine: Engine) -> None:
    """Set-wise, each by its own user, category and recipient. Fails when one gets the rules of another."""
    add_user(engine, "u3", phone="+447700900003", status="SUSPENDED")
    add_user(engine, "u4", phone="+447700900004")
    choose(api, {"news": {"SMS": False}})
    write(api, "/v1/categories/loud", {"channels": {"SMS": False}})
    write(api, "/v1/suppressions", {"channel": "SMS", "address": "+447700900005"})

    def one(user: str, category: str = "news", to: str | None = "+447700900000") -> Submission:
        recipients = {} if to is None else {"SMS": to}
        return Submission(user, category, Priority.LOW, (Channel.SMS,), "t", "b", recipients, {}, {})

    asked = [
        one("u1"),
        one("u2"),
        one("u1", "orders"),
        one("u2", "loud"),
        one("u3", to=None),
        one("u4", to=None),
        one("u2", to="+447700900005"),
    ]
    ids = api_services(api.settings).accept.many("demo", asked)
    found = {
        str(row.id): (row.suppressed[0]["reason"] if row.suppressed else row.decision[0]["rule"])
        for row in rows("SELECT id, suppressed, decision FROM notification")
    }
    assert [found[identifier] for identifier in ids] == [
        "preference_off",
        "default",
        "default",
        "preference_off",
        "user_suspended",
        "default",
        "address_suppressed",
    ]
    assert len(rows("SELECT FROM delivery")) == 3


def test_nobody_is_told_what_another_tenant_chose(api: Api) -> None:
    """The same user id in two tenants is two people."""
    choose(api, {"news": {"SMS": False}})
    assert api.post(sms(category="news"), tenant="other").get_json()["status"] == "ACCEPTED"
