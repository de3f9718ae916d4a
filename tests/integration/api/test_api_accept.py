"""Accepting a notification: what is stored, what is answered, and what one idempotency key stands for."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg2
import pytest
from sqlalchemy.engine import Row

from app.domain.ids import minted_at, siblings
from app.domain.kinds import Channel, Priority
from app.services.accept.submission import Submission
from app.services.refusal import Refused
from app.wiring import api_services
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.sealed import content_of

Rows = Callable[..., list[Row[Any]]]

BOTH = {
    "user_id": 42,
    "category": "security",
    "priority": "HIGH",
    "channels": ["SMS", "EMAIL", "IN_APP"],
    "content": {"title": "Code", "body": "123456\nvalid for 5 minutes"},
    "recipients": {"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com"},
    "expires_in": 300,
    "metadata": {"order": "123", "vip": True, "sum": 1.5, "none": None},
}


def test_the_answer_is_202_and_names_each_delivery_in_the_order_of_the_request(api: Api) -> None:
    """The answer has the contract's fields and no other; an in-app delivery is delivered by being stored."""
    response = api.post(BOTH)
    assert response.status_code == 202
    body = response.get_json()
    assert set(body) == {"id", "status", "created_at", "deliveries", "suppressed"}
    assert [(each["channel"], each["status"]) for each in body["deliveries"]] == [
        ("SMS", "PENDING"),
        ("EMAIL", "PENDING"),
        ("IN_APP", "DELIVERED"),
    ]
    assert body["status"] == "IN_PROGRESS"
    assert body["suppressed"] == []
    assert "Idempotency-Replayed" not in response.headers


def test_what_is_stored_is_what_was_asked_for(api: Api, rows: Rows) -> None:
    """One notification and three deliveries, due now by the database's clock, under ids of one millisecond."""
    body = api.post(BOTH).get_json()
    (stored,) = rows("SELECT * FROM notification")
    assert (stored.user_id, stored.priority, stored.delivery_count, stored.tenant_id) == ("42", 0, 3, "demo")
    assert stored.metadata == BOTH["metadata"]
    assert content_of(stored) == BOTH["content"] | {"recipients": BOTH["recipients"]}
    deliveries = rows("SELECT *, relay_at <= now() AS due, now() - relay_at AS age FROM delivery ORDER BY id")
    assert [each.channel for each in deliveries] == BOTH["channels"]
    low, high = siblings(stored.id)
    for each in deliveries:
        assert low <= each.id <= high
        assert each.due
        assert each.age < timedelta(seconds=30)
        assert each.relay_at == each.next_attempt_at
        assert each.attempts_allowed == api.settings.retry_attempts
        assert each.created_at == minted_at(each.id) == stored.created_at
        assert each.expires_at - each.relay_at == timedelta(seconds=300)
    assert datetime.fromisoformat(body["created_at"]) == stored.created_at


def test_a_later_time_makes_every_channel_wait(api: Api, rows: Rows) -> None:
    """Scheduled in-app deliveries are pending too, and the deadline counts from the scheduled time."""
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    body = api.post(BOTH | {"scheduled_at": at.isoformat()}).get_json()
    assert {each["status"] for each in body["deliveries"]} == {"PENDING"}
    assert body["status"] == "ACCEPTED"
    for each in rows("SELECT relay_at, next_attempt_at, expires_at FROM delivery"):
        assert each.relay_at == each.next_attempt_at == at
        assert each.expires_at == at + timedelta(seconds=300)


def test_a_time_in_the_past_means_now(api: Api, rows: Rows) -> None:
    """A past time neither jumps the queue nor spends the deadline."""
    body = api.post(BOTH | {"scheduled_at": "2020-01-01T00:00:00+02:00"}).get_json()
    assert body["deliveries"][2]["status"] == "DELIVERED"
    for each in rows("SELECT now() - relay_at AS age FROM delivery"):
        assert timedelta(0) <= each.age < timedelta(seconds=30)


def test_a_repeated_request_gets_the_same_bytes(api: Api, rows: Rows) -> None:
    """The order of keys and white space do not make another request."""
    first = api.post(sms(), key="same")
    again = api.post(
        b'{ "recipients": {"SMS": "+447700900000"}, "content": {"body": "hello", "title": "Hello"},'
        b'"channels": ["SMS"], "priority": "NORMAL", "category": "security", "user_id": "u1" }',
        key="same",
    )
    assert again.status_code == 202
    assert again.data == first.data
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(rows("SELECT FROM notification")) == len(rows("SELECT FROM delivery")) == 1


def test_fifty_racing_requests_make_one_notification(api: Api, rows: Rows) -> None:
    """Case D01. Fails when the key is looked up first and inserted afterwards instead of guarding the insert."""
    start = threading.Barrier(50)
    header = api.bearer()

    def call(_: int) -> tuple[int, bytes, str | None]:
        client = api.app.test_client()
        start.wait()
        answer = client.post(PATH, json=sms(), headers=header | {"Idempotency-Key": "race"})
        return answer.status_code, answer.data, answer.headers.get("Idempotency-Replayed")

    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(call, range(50)))
    assert {status for status, _, _ in answers} == {202}
    assert len({data for _, data, _ in answers}) == 1
    assert sorted(str(replayed) for _, _, replayed in answers) == ["None"] + ["true"] * 49
    assert len(rows("SELECT FROM notification")) == len(rows("SELECT FROM delivery")) == 1


def test_the_same_key_with_another_body_is_refused(api: Api, rows: Rows) -> None:
    """Case D03. Fails when the stored fingerprint is not compared."""
    first = api.post(sms(0), key="k")
    other = api.post(sms(1), key="k")
    assert other.status_code == 422
    assert error_of(other)["code"] == "DOMAIN_IDEMPOTENCY_KEY_REUSED"
    assert len(rows("SELECT FROM notification")) == 1
    assert api.post(sms(0), key="k").data == first.data


def test_a_process_that_dies_before_its_commit_leaves_the_key_free(
    api: Api, rows: Rows, database_url: str
) -> None:
    """Case D05. Fails when the key is committed before the notification."""
    dying = psycopg2.connect(database_url)
    with dying.cursor() as cursor:
        cursor.execute(
            "INSERT INTO idempotency_key VALUES ('demo', 'POST /v1/notifications', 'k', '', %s, 'lost')",
            (str(uuid.uuid4()),),
        )
        answers: list[int] = []
        waiting = threading.Thread(target=lambda: answers.append(api.post(sms(), key="k").status_code))
        waiting.start()
        dying.close()
    waiting.join(10)
    assert answers == [202]
    assert len(rows("SELECT FROM notification")) == 1


def test_a_key_belongs_to_its_tenant(api: Api, rows: Rows) -> None:
    """Case D07. Two tenants with one key get two notifications; the route is part of the key's scope too."""
    one = api.post(sms(), key="abc", tenant="a").get_json()
    two = api.post(sms(7), key="abc", tenant="b").get_json()
    assert one["id"] != two["id"]
    assert {(each.tenant_id, each.route) for each in rows("SELECT tenant_id, route FROM idempotency_key")} == {
        ("a", "POST /v1/notifications"),
        ("b", "POST /v1/notifications"),
    }


@pytest.mark.parametrize(
    "key",
    [
        "ы" * 128,
        "👍",
        "e\u0301",
        "é",
        "a b",
        "tab\there",
        "",
        " ",
        "x" * 256,
        "\x7f",
    ],
    ids=["cyrillic", "emoji", "nfd", "nfc", "space", "tab", "empty", "blank", "long", "delete"],
)
def test_a_key_is_visible_ascii(api: Api, rows: Rows, key: str) -> None:
    """Case D09. Header bytes arrive as Latin-1; anything but 1 to 255 visible ASCII characters is 400."""
    environ = {"HTTP_IDEMPOTENCY_KEY": key.encode().decode("latin-1")}
    response = api.client.post(PATH, json=sms(), headers=api.bearer(), environ_overrides=environ)
    assert response.status_code == 400
    assert error_of(response)["code"] == "VALIDATION_IDEMPOTENCY_KEY"
    assert not rows("SELECT FROM idempotency_key")


def test_a_key_of_255_characters_is_taken_and_a_missing_one_is_not(api: Api) -> None:
    """The bounds of the header."""
    assert api.post(sms(), key="~" * 255).status_code == 202
    response = api.client.post(PATH, json=sms(), headers=api.bearer())
    assert response.status_code == 400
    assert error_of(response)["code"] == "VALIDATION_IDEMPOTENCY_KEY_MISSING"


def _submission(**chosen: Any) -> Submission:
    values: dict[str, Any] = {
        "user_id": "u",
        "category": "news",
        "priority": Priority.LOW,
        "channels": (Channel.EMAIL, Channel.IN_APP),
        "title": "Hi",
        "body": "there",
        "recipients": {"EMAIL": "a@example.com"},
        "metadata": {"n": 1},
        "payload": {},
    }
    return Submission(**(values | chosen))


def test_many_are_stored_in_one_statement(api: Api, rows: Rows) -> None:
    """The ids come back in order, and scheduled and immediate ones mix."""
    later = datetime.now(UTC) + timedelta(hours=1)
    given = [_submission(user_id=f"u{n}", scheduled_at=later if n % 2 else None, expires_in=60) for n in range(40)]
    identifiers = api_services(api.settings).accept.many("demo", given)
    stored = {each.id: each.user_id for each in rows("SELECT id, user_id FROM notification")}
    assert [stored[UUID(identifier)] for identifier in identifiers] == [f"u{n}" for n in range(40)]
    counts = rows("SELECT channel, status, count(*) FROM delivery GROUP BY 1, 2 ORDER BY 1, 2")
    assert [tuple(each) for each in counts] == [
        ("EMAIL", "PENDING", 40),
        ("IN_APP", "DELIVERED", 20),
        ("IN_APP", "PENDING", 20),
    ]
    assert len(rows("SELECT DISTINCT transaction FROM (SELECT xmin::text AS transaction FROM delivery) AS d")) == 1


def test_one_impossible_member_stores_nothing_of_a_batch(api: Api, rows: Rows) -> None:
    """The batch is refused before anything is written."""
    with pytest.raises(Refused):
        api_services(api.settings).accept.many("demo", [_submission(), _submission(recipients={})])
    assert not rows("SELECT FROM notification")


def test_ids_are_of_the_day_on_which_they_are_partitioned(api: Api, rows: Rows) -> None:
    """An id alone tells the partition, so a look-up reads one."""
    identifier = UUID(api.post(sms()).get_json()["id"])
    (row,) = rows("SELECT tableoid::regclass::text AS name FROM notification")
    assert row.name == f"notification_{minted_at(identifier):%Y%m%d}"
