"""A newer notification with a key takes the place of the older ones that were not sent."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.engine import Engine, Row
from werkzeug.test import TestResponse

from app.db import notifications
from app.domain.kinds import Channel, Priority
from app.services.accept.plan import plan
from app.services.accept.rows import Rows as StoredRows
from app.services.accept.submission import IdempotencyKey, Submission
from app.wiring import api_services, vault
from tests.integration.api.conftest import Api, error_of, sms
from tests.pipeline_parts import in_thread
from tests.waiting import never

Rows = Callable[..., list[Row[Any]]]

KEY = "order-7"
BOTH = {"channels": ["SMS", "EMAIL"], "recipients": {"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com"}}


def states(rows: Rows, notification: str) -> dict[str, str]:
    found = rows("SELECT channel, status FROM delivery WHERE notification_id = %(id)s::uuid", id=notification)
    return {row.channel: row.status for row in found}


def many_of(*keys: str | None, user: str = "u1") -> list[Submission]:
    return [
        Submission(
            user,
            "orders",
            Priority.LOW,
            (Channel.SMS,),
            "t",
            "b",
            {"SMS": "+447700900000"},
            {},
            {},
            supersede_key=key,
        )
        for key in keys
    ]


def test_a_newer_one_calls_off_what_is_not_sent_on_all_channels(api: Api, rows: Rows) -> None:
    """The old deliveries are CANCELLED as superseded, and GET says so and shows the key."""
    old = api.post(sms(supersede_key=KEY) | BOTH).get_json()["id"]
    rows("UPDATE delivery SET status = 'QUEUED', published_seq = 1 WHERE channel = 'EMAIL'")
    new = api.post(sms(supersede_key=KEY)).get_json()["id"]
    assert states(rows, old) == {"SMS": "CANCELLED", "EMAIL": "CANCELLED"}
    assert states(rows, new) == {"SMS": "PENDING"}
    seen = api.read(old).get_json()
    assert (seen["status"], seen["supersede_key"]) == ("CANCELLED", KEY)
    assert {each["error_code"] for each in seen["deliveries"]} == {"superseded"}


@pytest.mark.parametrize("status", ["SENDING", "UNKNOWN"])
def test_what_is_being_sent_is_asked_to_end_and_stays(api: Api, rows: Rows, status: str) -> None:
    """Fails when a call in flight is CANCELLED under its worker."""
    old = api.post(sms(supersede_key=KEY)).get_json()["id"]
    lease = "lease_until = now() + interval '1 min'" if status == "SENDING" else "uncertain = true"
    rows(f"UPDATE delivery SET status = '{status}', lease_token = 1, {lease}")
    api.post(sms(supersede_key=KEY))
    assert states(rows, old) == {"SMS": status}
    (row,) = rows("SELECT cancel_requested_at FROM delivery WHERE notification_id = %(id)s::uuid", id=old)
    assert row.cancel_requested_at is not None


@pytest.mark.parametrize("ended", ["SENT", "DELIVERED", "FAILED", "EXPIRED"])
def test_what_has_ended_stays_as_it_is(api: Api, rows: Rows, ended: str) -> None:
    """A message that arrived is not called off afterwards."""
    old = api.post(sms(supersede_key=KEY)).get_json()["id"]
    rows(f"UPDATE delivery SET status = '{ended}', sent_at = now(), delivered_at = now(), error_code = 'x'")
    api.post(sms(supersede_key=KEY))
    (row,) = rows("SELECT * FROM delivery WHERE notification_id = %(id)s::uuid", id=old)
    assert (row.status, row.error_code, row.cancel_requested_at) == (ended, "x", None)


def test_another_key_user_or_tenant_is_left_alone(api: Api, rows: Rows) -> None:
    """Fails when any of the three is left out of the comparison."""
    kept = [
        api.post(sms(supersede_key="other")),
        api.post(sms(supersede_key=KEY, user_id="u2")),
        api.post(sms(supersede_key=KEY), tenant="rival"),
        api.post(sms()),
    ]
    api.post(sms(supersede_key=KEY))
    for answer in kept:
        assert states(rows, answer.get_json()["id"]) == {"SMS": "PENDING"}


def test_older_unread_inbox_items_are_archived(api: Api, rows: Rows) -> None:
    """A read one stays where the person left it."""
    in_app = {"channels": ["IN_APP"], "recipients": None}
    read, unread = (api.post(sms(supersede_key=KEY) | in_app).get_json()["id"] for _ in range(2))
    rows("UPDATE notification SET read_at = now(), archived_at = NULL WHERE id = %(id)s::uuid", id=read)
    new = api.post(sms(supersede_key=KEY) | in_app).get_json()["id"]
    archived = {
        str(row.id): row.archived_at is not None for row in rows("SELECT id, archived_at FROM notification")
    }
    assert archived == {read: False, unread: True, new: False}
    assert states(rows, unread) == {"IN_APP": "DELIVERED"}


def test_a_repeated_request_supersedes_nothing_again(api: Api, rows: Rows) -> None:
    """Fails when the second statement runs for a key that was used before: it would call off the newer one."""
    first = api.post(sms(supersede_key=KEY), key="first")
    second = api.post(sms(supersede_key=KEY), key="second")
    again = api.post(sms(supersede_key=KEY), key="first")
    assert again.data == first.data
    assert again.headers["Idempotency-Replayed"] == "true"
    assert states(rows, second.get_json()["id"]) == {"SMS": "PENDING"}


def test_a_scheduled_one_is_superseded_before_its_time(api: Api, rows: Rows) -> None:
    """And a newer one that is scheduled takes the older one's place when it is accepted, not when it is due."""
    at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    first = api.post(sms(supersede_key=KEY, scheduled_at=at)).get_json()["id"]
    second = api.post(sms(supersede_key=KEY)).get_json()["id"]
    third = api.post(sms(supersede_key=KEY, scheduled_at=at)).get_json()["id"]
    assert [states(rows, each)["SMS"] for each in (first, second, third)] == ["CANCELLED", "CANCELLED", "PENDING"]


def test_a_request_waits_for_one_of_its_key_that_has_not_committed(api: Api, rows: Rows, engine: Engine) -> None:
    """Fails without the turn: neither would see the other's rows, and both would stay."""
    (submission,) = many_of(KEY)
    key = IdempotencyKey("test", "older", b"f")
    older = StoredRows(vault(api.settings), 6).row("demo", submission, plan(submission, None), key)
    answers: list[TestResponse] = []
    held = engine.raw_connection()
    try:
        assert notifications.accept(held.cursor(), older) is not None
        with in_thread(lambda: answers.append(api.post(sms(supersede_key=KEY)))):
            never(lambda: answers, seconds=0.5)
            held.commit()
    finally:
        held.close()
    assert states(rows, older["id"]) == {"SMS": "CANCELLED"}
    assert states(rows, answers[0].get_json()["id"]) == {"SMS": "PENDING"}


def test_of_fifty_racing_requests_exactly_the_newest_stays(api: Api, rows: Rows) -> None:
    """None ends in a deadlock, and none of the fifty is left beside the newest on any channel."""
    start = threading.Barrier(10)
    clients = [api.app.test_client() for _ in range(10)]
    header = api.bearer()

    def post(number: int) -> int:
        if number < 10:
            start.wait(10)
        answer = clients[number % 10].post(
            "/v1/notifications",
            json=sms(supersede_key=KEY) | BOTH,
            headers=header | {"Idempotency-Key": f"race-{number}"},
        )
        return answer.status_code

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(post, range(50))) == {202}
    newest = max(UUID(str(row.id)) for row in rows("SELECT id FROM notification"))
    open_ones = rows("SELECT notification_id, status FROM delivery WHERE status <> 'CANCELLED'")
    assert {row.notification_id for row in open_ones} == {newest}
    assert len(open_ones) == 2
    assert len(rows("SELECT FROM delivery")) == 100


def test_racing_batches_of_crossed_keys_neither_deadlock_nor_leave_two(api: Api, rows: Rows) -> None:
    """Fails when turns are not taken in one order: the same keys the other way round would lock each other."""
    accept = api_services(api.settings).accept
    keys = [f"k{number}" for number in range(20)]

    def batch(number: int) -> int:
        return len(accept.many("demo", many_of(*(keys if number % 2 else keys[::-1]), None)))

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(batch, range(12))) == {21}
    left = rows("SELECT supersede_key, count(*) AS n FROM delivery WHERE status = 'PENDING' GROUP BY 1")
    assert {row.supersede_key: row.n for row in left} == {None: 12} | dict.fromkeys(keys, 1)


def test_within_one_batch_one_of_a_key_stays(api: Api, rows: Rows) -> None:
    """The set-wise statement holds its own rows against each other too."""
    api_services(api.settings).accept.many("demo", many_of(KEY, KEY, KEY, "other", None, None))
    left = rows("SELECT supersede_key, count(*) AS n FROM delivery WHERE status = 'PENDING' GROUP BY 1")
    assert {row.supersede_key: row.n for row in left} == {None: 2, KEY: 1, "other": 1}


@pytest.mark.parametrize("key", ["", "x" * 129, "two\nlines", 7])
def test_a_key_is_one_short_line(api: Api, key: Any) -> None:
    """What does not fit is named."""
    error = error_of(api.post(sms(supersede_key=key)))
    assert error["code"] == "VALIDATION_BODY"
    assert {each["field"] for each in error["details"]} == {"supersede_key"}
