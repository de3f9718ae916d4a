"""Reading and cancelling: what a tenant sees of its own notifications, and that it sees nobody else's."""

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import jsonschema
import psycopg2
import pytest
from sqlalchemy.engine import Engine, Row

from app.db.notifications import CANCEL, READ
from app.domain.callers import Caller
from app.domain.ids import mint
from app.services.audit import audited
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.waiting import eventually

Rows = Callable[..., list[Row[Any]]]

CLAIM = """UPDATE delivery SET status = 'SENDING', lease_token = lease_token + 1,
           lease_until = now() + interval '1 minute'"""
ATTEMPT = """INSERT INTO attempt SELECT id, %(number)s, tenant_id, 'sandbox', %(outcome)s, '503', 'unavailable',
             now(), 12 FROM delivery"""


def accepted(api: Api, **chosen: Any) -> str:
    response = api.post(sms(**chosen))
    assert response.status_code == 202, response.text
    return str(response.get_json()["id"])


def test_a_notification_is_read_with_its_deliveries_and_attempts(api: Api, rows: Rows) -> None:
    """The answer fits the schema that the OpenAPI document publishes, and has the fields of the contract."""
    identifier = accepted(api, expires_in=60, metadata={"order": "1"})
    rows(ATTEMPT, number=1, outcome="retry")
    rows(ATTEMPT, number=2, outcome="throttled")
    rows("UPDATE delivery SET attempts = 2, error_code = 'throttled', last_error = 'slow down'")
    body = api.read(identifier).get_json()
    (delivery,) = body["deliveries"]
    assert [(each["number"], each["outcome"]) for each in delivery["attempts"]] == [(1, "retry"), (2, "throttled")]
    assert set(delivery["attempts"][0]) == {
        "number",
        "provider",
        "outcome",
        "code",
        "detail",
        "started_at",
        "duration_ms",
    }
    assert delivery["next_attempt_at"].endswith("Z")
    assert (delivery["error_code"], delivery["last_error"]) == ("throttled", "slow down")
    assert body["recipients"] == {"SMS": "+44*****0000"}
    document = api.get("/openapi.json").get_json()
    schema = {"$ref": "#/components/schemas/NotificationView", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(body)


@pytest.mark.parametrize(("priority", "policy"), [("HIGH", "resend"), ("NORMAL", "hold")], ids=["resend", "hold"])
def test_an_unknown_delivery_says_what_will_be_done_and_when(
    api: Api, rows: Rows, priority: str, policy: str
) -> None:
    """An SMS whose call may have been accepted: its policy, until when it waits, and no next attempt promised."""
    identifier = accepted(api, priority=priority)
    rows("UPDATE delivery SET status = 'UNKNOWN', uncertain = true, attempts = 1")
    (delivery,) = api.read(identifier).get_json()["deliveries"]
    assert (delivery["status"], delivery["uncertain"], delivery["unknown_policy"]) == ("UNKNOWN", True, policy)
    assert delivery["unknown_until"].endswith("Z")
    assert delivery["next_attempt_at"] is None
    assert "may have been accepted" in delivery["note"]


def test_an_ended_delivery_with_an_uncertain_call_says_so(api: Api, rows: Rows) -> None:
    """FAILED after an uncertain call is not the same as never sent."""
    identifier = accepted(api)
    rows("UPDATE delivery SET status = 'FAILED', error_code = 'uncertain', uncertain = true")
    body = api.read(identifier).get_json()
    assert body["status"] == "FAILED"
    assert body["deliveries"][0]["note"] == "an earlier call may have been delivered"


def test_a_waiting_delivery_is_cancelled_and_stays_so(api: Api, rows: Rows) -> None:
    """Cancelling again gives the same answer and writes nothing."""
    identifier = accepted(api)
    for _ in range(2):
        body = api.cancel(identifier).get_json()
        assert body["status"] == "CANCELLED"
        assert [(each["status"], each["result"]) for each in body["deliveries"]] == [("CANCELLED", "cancelled")]
        (row,) = rows("SELECT status, cancel_requested_at, xmin::text AS version FROM delivery")
        assert row.status == "CANCELLED"
    api.cancel(identifier)
    assert rows("SELECT xmin::text FROM delivery")[0][0] == row.version


def test_a_delivery_that_is_being_sent_is_asked_to_end(api: Api, rows: Rows) -> None:
    """Fails when SENDING is cancelled straight away: its call may be on the way. UNKNOWN likewise."""
    identifier = accepted(api)
    rows(CLAIM)
    body = api.cancel(identifier).get_json()
    assert body["deliveries"][0]["result"] == "being sent"
    (row,) = rows("SELECT status, cancel_requested_at FROM delivery")
    assert row.status == "SENDING"
    assert row.cancel_requested_at is not None
    rows("UPDATE delivery SET status = 'UNKNOWN', lease_until = NULL, uncertain = true")
    assert api.cancel(identifier).get_json()["deliveries"][0]["result"] == "being sent"
    assert rows("SELECT cancel_requested_at FROM delivery")[0][0] == row.cancel_requested_at


def test_a_cancel_waits_for_a_claim_and_sees_it(api: Api, rows: Rows, database_url: str) -> None:
    """Fails when the updates ask the snapshot's row (`d.status`) instead of the one that the lock returned."""
    identifier = accepted(api)
    worker = psycopg2.connect(database_url)
    with worker.cursor() as cursor:
        cursor.execute(CLAIM)
    answers: list[dict[str, Any]] = []
    cancelling = threading.Thread(target=lambda: answers.append(api.cancel(identifier).get_json()))
    cancelling.start()
    eventually(lambda: rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    worker.commit()
    worker.close()
    cancelling.join(10)
    assert answers[0]["deliveries"][0]["result"] == "being sent"
    (row,) = rows("SELECT status, cancel_requested_at FROM delivery")
    assert row.status == "SENDING"
    assert row.cancel_requested_at is not None


def test_a_cancel_that_comes_first_wins_over_a_claim(api: Api, rows: Rows) -> None:
    """After it, a claim's compare-and-set finds nothing."""
    identifier = accepted(api)
    api.cancel(identifier)
    claimed = rows(CLAIM + " WHERE status IN ('PENDING', 'QUEUED') RETURNING id")
    assert claimed == []


def test_what_has_ended_is_left_alone(api: Api, rows: Rows) -> None:
    """SENT is over; the other channel is still called off, and the whole is PARTIAL."""
    response = api.post(sms(channels=["SMS", "PUSH"], recipients={"SMS": "+447700900000", "PUSH": "sandbox:ok"}))
    identifier = response.get_json()["id"]
    rows("UPDATE delivery SET status = 'SENT', sent_at = now() WHERE channel = 'SMS'")
    body = api.cancel(identifier).get_json()
    assert [each["result"] for each in body["deliveries"]] == ["already ended", "cancelled"]
    assert body["status"] == api.read(identifier).get_json()["status"] == "PARTIAL"


def test_another_tenant_finds_nothing(api: Api, rows: Rows) -> None:
    """404, not 403: not even the existence is told, and nothing is changed."""
    identifier = accepted(api)
    for response in (api.read(identifier, "other"), api.cancel(identifier, "other")):
        assert response.status_code == 404
        assert error_of(response)["code"] == "DOMAIN_NOTIFICATION_NOT_FOUND"
    assert rows("SELECT status FROM delivery")[0][0] == "PENDING"


def test_the_database_itself_separates_tenants(api: Api, engine: Engine) -> None:
    """Fails without the policies, or when the API's role may pass them: there is no WHERE in these queries."""
    accepted(api)
    tables = ("notification", "delivery", "idempotency_key")
    counts = " UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in tables)
    for tenant, expected in (("demo", [1, 1, 1]), ("other", [0, 0, 0]), ("", [0, 0, 0])):
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
            connection.exec_driver_sql("SELECT set_config('arauto.tenant', %(tenant)s, true)", {"tenant": tenant})
            assert [row[0] for row in connection.exec_driver_sql(counts)] == expected
            changed = connection.exec_driver_sql("UPDATE delivery SET last_error = 'x'").rowcount
            assert changed == expected[1]
    with engine.connect() as connection:
        connection.exec_driver_sql("SET ROLE arauto_api")
        assert [row[0] for row in connection.exec_driver_sql(counts)] == [0, 0, 0]


def test_the_role_does_not_outlive_the_request(api: Api, make_api: Callable[..., Api]) -> None:
    """One connection serves two tenants in turn, and health checks as itself."""
    api = make_api(api_database_pool=1)
    identifier = accepted(api)
    for _ in range(3):
        assert api.read(identifier, "other").status_code == 404
        assert api.read(identifier).status_code == 200


def test_a_look_up_reads_one_partition_of_each_table(engine: Engine) -> None:
    """Fails when a query by notification id does not bound the ids of the deliveries."""
    identifier = mint()[0]
    low, high = str(identifier), str(identifier)
    entry = audited(Caller("tests", "demo", frozenset()), "notification.cancelled", "notification", low)
    values = entry | {"id": str(identifier), "low": low, "high": high, "with_deleted": False}
    for statement, user_id in itertools.product((READ, CANCEL), (None, "u1")):
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
            plan = connection.exec_driver_sql(
                f"EXPLAIN (FORMAT JSON) {statement}", values | {"user_id": user_id}
            ).scalar()
        partitions = {name for name in _relations(json.loads(json.dumps(plan))) if name[-1].isdigit()}
        days = {name.rsplit("_", 1)[1] for name in partitions}
        assert len(days) == 1, partitions


def _relations(plan: Any) -> list[str]:
    if isinstance(plan, list):
        return [name for each in plan for name in _relations(each)]
    if isinstance(plan, dict):
        own = [plan["Relation Name"]] if "Relation Name" in plan else []
        return own + [name for each in plan.values() for name in _relations(each)]
    return []


def test_every_route_is_in_the_document_and_every_schema_is_sound(api: Api) -> None:
    """The OpenAPI document equals the routes below /v1, and its schemas are JSON Schema 2020-12."""
    document = api.get("/openapi.json").get_json()
    assert document["openapi"].startswith("3.1")
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if method in {"get", "post", "put", "patch", "delete"}
    }
    served = {
        (method, rule.rule.replace("<", "{").replace(">", "}"))
        for rule in api.app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.endpoint.split(".")[0] != "docs"
    }
    assert described == served
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    example = document["components"]["schemas"]["NotificationRequest"]["example"]
    assert api.client.post(PATH, json=example, headers=api.bearer() | {"Idempotency-Key": "e"}).status_code == 202


def test_the_documentation_needs_no_other_host(api: Api) -> None:
    """Every asset of the page is served here, and its policy forbids any other."""
    page = api.get("/docs").text
    assert "http" not in page.replace("<!doctype html>", "")
    for asset in ("/docs/assets/swagger-ui.css", "/docs/assets/swagger-ui-bundle.js", "/docs/start.js"):
        assert asset in page
        response = api.get(asset)
        assert response.status_code == 200
        response.close()
    assert api.get("/").headers["Location"] == "/docs"
    assert api.get("/docs/assets/../../../etc/passwd").status_code == 404
