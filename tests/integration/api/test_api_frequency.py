"""Frequency caps: no person gets more than the limit of a category in any window, whatever races."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Engine, Row
from werkzeug.test import TestResponse

from app.db import frequency
from app.domain.kinds import Channel, Priority
from app.services.accept.submission import Submission
from app.wiring import api_services
from tests.integration.api.conftest import Api, error_of, sms
from tests.pipeline_parts import in_thread
from tests.waiting import never

Rows = Callable[..., list[Row[Any]]]

SCOPES = "preferences:read preferences:write"
PATH = "/v1/frequency-caps"


def put(api: Api, category: str = "offers", tenant: str = "demo", **body: Any) -> TestResponse:
    body = {"limit": 2, "window_seconds": 3600} | body
    return api.client.put(f"{PATH}/{category}", json=body, headers=api.bearer(tenant, SCOPES))


def offer(**chosen: Any) -> dict[str, Any]:
    return sms(category="offers") | chosen


def outcome(answer: TestResponse) -> str:
    body = answer.get_json()
    if body["suppressed"]:
        assert body["suppressed"] == [{"channel": "SMS", "reason": "frequency_cap"}]
        assert (body["status"], body["deliveries"]) == ("SUPPRESSED", [])
        return "capped"
    return "made"


def many_of(count: int, user: str = "u1", priority: Priority = Priority.LOW) -> list[Submission]:
    to = {"SMS": "+447700900000"}
    return [Submission(user, "offers", priority, (Channel.SMS,), "t", "b", to, {}, {}) for _ in range(count)]


def test_a_cap_is_set_listed_changed_and_taken_away(api: Api) -> None:
    """The usual life of a resource; another tenant sees none of it."""
    assert put(api).get_json() == {
        "category": "offers",
        "limit": 2,
        "window_seconds": 3600,
        "channels": ["EMAIL", "IN_APP", "PUSH", "SMS"],
    }
    put(api, limit=5, channels=["PUSH"])
    put(api, "news", limit=0)
    listed = api.client.get(PATH, headers=api.bearer(scope=SCOPES)).get_json()
    assert [(each["category"], each["limit"]) for each in listed["data"]] == [("news", 0), ("offers", 5)]
    assert listed["next_cursor"] is None
    assert api.client.get(PATH, headers=api.bearer("rival", SCOPES)).get_json()["data"] == []
    assert api.client.delete(f"{PATH}/news", headers=api.bearer("rival", SCOPES)).status_code == 404
    assert api.client.delete(f"{PATH}/news", headers=api.bearer(scope=SCOPES)).status_code == 204
    gone = api.client.delete(f"{PATH}/news", headers=api.bearer(scope=SCOPES))
    assert error_of(gone)["code"] == "DOMAIN_FREQUENCY_CAP_NOT_FOUND"
    assert api.client.get(PATH, headers=api.bearer()).status_code == 403


def test_a_tenant_has_at_most_a_hundred(api: Api, rows: Rows) -> None:
    """A hundred and first is refused; one of the hundred can still be changed."""
    rows(
        "INSERT INTO frequency_cap (tenant_id, category, most, window_seconds, channels)"
        " SELECT 'demo', 'c' || n, 1, 1, '{SMS}' FROM generate_series(1, 100) AS n"
    )
    assert error_of(put(api))["code"] == "DOMAIN_FREQUENCY_CAPS_FULL"
    assert put(api, "c7").status_code == 200


@pytest.mark.parametrize(
    "body", [{"limit": -1}, {"window_seconds": 0}, {"channels": []}, {"channels": ["SMS", "SMS"]}, {"other": 1}]
)
def test_what_makes_no_sense_is_refused(api: Api, body: dict[str, Any]) -> None:
    """400, with the field."""
    assert put(api, **body).status_code == 400


def test_over_the_limit_the_channel_is_suppressed_and_says_why(api: Api, rows: Rows) -> None:
    """Each person and category is counted alone; what is suppressed does not count."""
    put(api)
    assert [outcome(api.post(offer())) for _ in range(4)] == ["made", "made", "capped", "capped"]
    assert outcome(api.post(offer(user_id="u2"))) == "made"
    assert outcome(api.post(sms(category="orders"))) == "made"
    assert len(rows("SELECT FROM frequency_hit")) == 3
    assert [row.delivery_count for row in rows("SELECT delivery_count FROM notification ORDER BY id")].count(
        0
    ) == 2


def test_high_is_never_capped_and_does_not_count(api: Api) -> None:
    """Fails when the exemption is left out: a code would not come."""
    put(api, limit=1)
    assert [outcome(api.post(offer(priority="HIGH"))) for _ in range(3)] == ["made"] * 3
    assert [outcome(api.post(offer())) for _ in range(2)] == ["made", "capped"]


def test_only_the_channels_of_the_rule_are_capped(api: Api) -> None:
    """The rest of the notification goes out."""
    put(api, limit=1, channels=["SMS"])
    both = offer(channels=["SMS", "IN_APP"])
    first, second = api.post(both).get_json(), api.post(both).get_json()
    assert [each["channel"] for each in first["deliveries"]] == ["SMS", "IN_APP"]
    assert [each["channel"] for each in second["deliveries"]] == ["IN_APP"]
    assert second["suppressed"] == [{"channel": "SMS", "reason": "frequency_cap"}]
    assert second["status"] == "COMPLETED"


def test_the_window_slides(api: Api, rows: Rows) -> None:
    """What has left the window makes room again, and its row goes."""
    put(api)
    for _ in range(2):
        api.post(offer())
    rows("UPDATE frequency_hit SET at = at - interval '59 minutes'")
    assert outcome(api.post(offer())) == "capped"
    rows("UPDATE frequency_hit SET at = at - interval '1 minute'")
    assert outcome(api.post(offer())) == "made"
    assert len(rows("SELECT FROM frequency_hit")) == 1


def test_a_repeated_key_counts_once(api: Api) -> None:
    """The answer is replayed, also when the person has had enough since."""
    put(api)
    first = api.post(offer(), key="same")
    for _ in range(3):
        assert api.post(offer(), key="same").data == first.data
    assert outcome(api.post(offer())) == "made"
    assert api.post(offer(), key="same").data == first.data


def test_of_thirty_racing_requests_exactly_the_limit_is_made(api: Api) -> None:
    """With half of them sharing keys: each key has one answer, and no more than the limit are made."""
    put(api, limit=7)
    start = threading.Barrier(10)
    header = api.bearer()

    def post(number: int) -> tuple[int, str]:
        if number < 10:
            start.wait(10)
        key = {"Idempotency-Key": f"k{number % 20}"}
        answer = api.app.test_client().post("/v1/notifications", json=offer(), headers=header | key)
        return number % 20, outcome(answer)

    with ThreadPoolExecutor(10) as pool:
        answers = set(pool.map(post, range(30)))
    assert len(answers) == 20
    assert Counter(result for _, result in answers) == {"made": 7, "capped": 13}


def test_a_request_waits_for_one_of_its_person_that_has_not_committed(api: Api, engine: Engine) -> None:
    """Fails without the turn: it would not count what the other is about to store."""
    put(api, limit=1)
    counted = frequency.Counted("u1", "offers", 3600)
    answers: list[TestResponse] = []
    held = engine.raw_connection()
    try:
        cursor = held.cursor()
        assert frequency.take_turns_and_count(cursor, "demo", [counted]) == {("u1", "offers"): 0}
        frequency.note(cursor, "demo", [(counted, "01936f1e-0000-7000-8000-000000000000")])
        with in_thread(lambda: answers.append(api.post(offer()))):
            never(lambda: answers, seconds=0.5)
            held.commit()
    finally:
        held.close()
    assert outcome(answers[0]) == "capped"


def test_bulk_counts_on_within_itself_and_with_others(api: Api, rows: Rows) -> None:
    """Racing batches over the same people neither deadlock nor pass the limit; HIGH does not count."""
    put(api, limit=5)
    accept = api_services(api.settings).accept
    people = [f"p{number}" for number in range(8)]

    def batch(number: int) -> int:
        order = people if number % 2 else people[::-1]
        return len(accept.many("demo", [one for user in order for one in many_of(3, user)]))

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(batch, range(8))) == {24}
    made = rows("SELECT user_id, count(*) AS n FROM delivery GROUP BY 1")
    assert {row.user_id: row.n for row in made} == dict.fromkeys(people, 5)
    accept.many("demo", many_of(4, "p0", Priority.HIGH))
    assert len(rows("SELECT FROM delivery WHERE user_id = 'p0'")) == 9


def test_a_request_that_is_refused_inside_leaves_the_connection_clean(api: Api, rows: Rows) -> None:
    """Fails without the rollback: an idle connection would hold the turn, and the next request hang."""
    put(api)
    broken = offer(recipients={})
    assert error_of(api.post(broken))["code"] == "DOMAIN_USER_NOT_FOUND"
    assert outcome(api.post(offer())) == "made"
    assert rows("SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'")[0].n == 0
