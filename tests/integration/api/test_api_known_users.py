"""Notifications to users who are known: their own addresses, and nothing personal in the tables."""

from sqlalchemy.engine import Engine

from tests.integration.api.conftest import Api, error_of, sms
from tests.user_rows import add_device, add_user

ALL = ["EMAIL", "SMS", "PUSH", "IN_APP"]


def test_own_addresses_are_used_and_a_push_goes_to_each_device(api: Api, engine: Engine) -> None:
    """No recipient is named in the request; a muted device gets nothing."""
    add_user(engine, "42", email="ana@example.com", phone="+447700900000")
    devices = {str(add_device(engine, "42", f"sandbox:{n}")) for n in range(2)}
    add_device(engine, "42", "sandbox:muted", is_muted=True)
    made = api.post(sms(user_id="42", channels=ALL, recipients={})).get_json()
    assert [each["channel"] for each in made["deliveries"]] == ["EMAIL", "SMS", "PUSH", "PUSH", "IN_APP"]
    shown = api.read(made["id"]).get_json()
    assert {each["device_id"] for each in shown["deliveries"]} == devices | {None}
    assert shown["recipients"] == {}


def test_what_keeps_a_channel_from_being_sent_is_named_in_the_answer(api: Api, engine: Engine) -> None:
    """It is stored with the notification, and a replay names it too."""
    add_user(engine, "42", phone="+447700900000")
    body = sms(user_id="42", channels=ALL, recipients={})
    made = api.post(body, "one").get_json()
    expected = [{"channel": "EMAIL", "reason": "no_address"}, {"channel": "PUSH", "reason": "no_device"}]
    assert made["suppressed"] == expected
    assert api.read(made["id"]).get_json()["suppressed"] == expected
    assert api.post(body, "one").get_json() == made


def test_nothing_to_send_is_accepted_as_suppressed(api: Api, engine: Engine) -> None:
    """A suspended user gets nothing; the notification is there and says why."""
    add_user(engine, "42", phone="+447700900000", status="SUSPENDED")
    response = api.post(sms(user_id="42", channels=["SMS", "IN_APP"], recipients={}))
    assert response.status_code == 202
    made = response.get_json()
    assert (made["status"], made["deliveries"]) == ("SUPPRESSED", [])
    assert api.read(made["id"]).get_json()["status"] == "SUPPRESSED"


def test_a_user_of_another_tenant_is_not_known(api: Api, engine: Engine) -> None:
    """Fails when the look-up forgets the tenant, in the WHERE clause and in the policy."""
    add_user(engine, "42", phone="+447700900000", tenant="other")
    error = error_of(api.post(sms(user_id="42", recipients={})))
    assert error["code"] == "DOMAIN_USER_NOT_FOUND"


def test_a_replay_is_answered_although_the_user_is_gone(api: Api, engine: Engine) -> None:
    """What was promised is said again; only a new request is refused."""
    add_user(engine, "42", phone="+447700900000")
    body = sms(user_id="42", recipients={})
    made = api.post(body, "one")
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM app_user")
    again = api.post(body, "one")
    assert (again.status_code, again.get_json()) == (202, made.get_json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert api.post(body, "two").status_code == 422


def test_no_table_holds_an_address_or_a_text_in_the_open(api: Api, engine: Engine) -> None:
    """Fails when any column of any table keeps what was sealed readable beside it."""
    add_user(engine, "42", email="hidden-mail@example.com")
    body = sms(user_id="42", channels=["EMAIL", "SMS", "PUSH"], payload={"code": "hidden-code"})
    body["content"] = {"title": "hidden-title", "body": "hidden-body"}
    body["recipients"] = {"SMS": "+447700900123", "PUSH": "hidden-token"}
    assert api.post(body).status_code == 202
    with engine.connect() as connection:
        tables = [
            row[0]
            for row in connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        everything = "".join(
            row[0] for table in tables for row in connection.exec_driver_sql(f"SELECT t::text FROM {table} t")
        )
    for secret in ("hidden", "447700900123", b"hidden".hex(), b"447700900123".hex()):
        assert secret not in everything
