"""The inbox: what is in it, what a reader does to it, that its count never drifts, and the news of it."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import psycopg2
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Row
from werkzeug.test import TestResponse

from app.domain.callers import Role
from app.domain.ids import mint
from app.domain.inbox_channel import inbox_channel
from app.wiring import cache as cache_parts
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.waiting import eventually

Rows = Callable[..., list[Row[Any]]]


@pytest.fixture
def api(make_api: Callable[..., Api], redis_url: str) -> Api:
    """The application with a cache."""
    return make_api(redis_url=redis_url)


def send(api: Api, user: str = "ana", **chosen: Any) -> str:
    answer = api.post(sms(user_id=user, **({"channels": ["IN_APP"]} | chosen)))
    assert answer.status_code == 202, answer.text
    return str(answer.get_json()["id"])


def call(api: Api, method: str, path: str, headers: dict[str, str] | None = None, **named: Any) -> TestResponse:
    return api.client.open(f"{PATH}/{path}", method=method, headers=headers or api.bearer(), **named)


def unread(api: Api, user: str = "ana") -> int:
    answer = api.get(f"{PATH}/unread-count?user_id={user}")
    assert answer.status_code == 200, answer.text
    return int(answer.get_json()["unread"])


def inbox(api: Api, query: str = "", user: str = "ana") -> list[str]:
    answer = api.get(f"/v1/users/{user}/inbox?{query}")
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.get_json()["data"]]


def admin(api: Api) -> dict[str, str]:
    return api.bearer(role=Role.ADMIN)


def test_the_inbox_holds_what_was_delivered_in_app(api: Api) -> None:
    """Newest first; nothing that is only mailed, nothing that is not due, and each item fits the schema."""
    first, second = send(api, metadata={"order": "1"}), send(api, channels=["SMS", "IN_APP"])
    send(api, channels=["SMS"])
    send(api, scheduled_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    answer = api.get("/v1/users/ana/inbox").get_json()
    assert [each["id"] for each in answer["data"]] == [second, first]
    assert answer["data"][1]["content"] == {"title": "Hello", "body": "hello"}
    assert answer["data"][1]["metadata"] == {"order": "1"}
    document = api.get("/openapi.json").get_json()
    schema = {"$ref": "#/components/schemas/InboxList", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)
    assert unread(api) == 2
    assert api.get("/v1/users/%00/inbox").status_code == 400


def test_a_mark_keeps_its_first_instant_and_writes_once(api: Api, rows: Rows) -> None:
    """Reading implies having seen; to repeat it changes not even the row's version.

    Fails when a repeated mark writes.
    """
    identifier = send(api)
    seen = call(api, "PUT", f"{identifier}/seen").get_json()
    assert (seen["id"], seen["read_at"], seen["archived_at"]) == (identifier, None, None)
    first = call(api, "PUT", f"{identifier}/read").get_json()
    assert first["seen_at"] == seen["seen_at"]
    assert first["read_at"] >= first["seen_at"]
    version = rows("SELECT xmin::text FROM notification")
    assert call(api, "PUT", f"{identifier}/read").get_json() == first
    assert call(api, "PUT", f"{identifier}/seen").get_json() == first
    assert rows("SELECT xmin::text FROM notification") == version
    again = call(api, "DELETE", f"{identifier}/read").get_json()
    assert again == first | {"read_at": None}
    shown = api.read(identifier).get_json()
    assert {name: shown[name] for name in again} == again


def test_the_filters_of_an_inbox(api: Api) -> None:
    """Unread or read, archived or not, by category."""
    plain, read, archived = send(api), send(api, category="news"), send(api)
    call(api, "PUT", f"{read}/read")
    call(api, "PUT", f"{archived}/archived")
    assert inbox(api) == [read, plain]
    assert inbox(api, "unread=true") == [plain]
    assert inbox(api, "unread=false") == [read]
    assert inbox(api, "archived=true") == [archived]
    assert inbox(api, "category=news") == [read]
    assert unread(api) == 1
    call(api, "DELETE", f"{archived}/archived")
    assert unread(api) == 2
    assert inbox(api) == [archived, read, plain]


def test_all_are_read_up_to_an_instant(api: Api) -> None:
    """Of one category or of all; the answer says how many and up to when. Other users are left alone."""
    old = send(api)
    until = api.read(old).get_json()["inbox_at"]
    time_moves(until)
    send(api)
    other = send(api, category="news")
    send(api, user="bea")
    until = (datetime.fromisoformat(until) + timedelta(milliseconds=1)).isoformat()
    answer = call(api, "PUT", "read-all", json={"user_id": "ana", "until": until}).get_json()
    assert answer["updated"] == 1
    assert unread(api) == 2
    assert call(api, "PUT", "read-all", json={"user_id": "ana", "category": "security"}).get_json()["updated"] == 1
    assert inbox(api, "unread=true") == [other]
    ana = api.bearer(role=Role.USER, subject="ana")
    assert call(api, "PUT", "read-all", ana).get_json()["updated"] == 1
    assert (unread(api), unread(api, "bea")) == (0, 1)
    refused = call(api, "PUT", "read-all", ana, json={"user_id": "bea"})
    assert error_of(refused)["code"] == "AUTH_USER_MISMATCH"
    assert call(api, "PUT", "read-all").status_code == 400
    assert call(api, "PUT", "read-all", json={"user_id": "ana", "until": "now"}).status_code == 400


def time_moves(instant: str) -> None:
    """Wait until the clock is two milliseconds past an instant."""
    eventually(lambda: datetime.now(UTC) > datetime.fromisoformat(instant) + timedelta(milliseconds=2))


def test_what_arrives_while_all_are_read_stays_unread(api: Api, database_url: str) -> None:
    """A notification that commits after the statement began is not in its snapshot.

    Fails when read-all is a loop over what is unread.
    """
    send(api)
    other = psycopg2.connect(database_url)
    with other.cursor() as cursor:
        cursor.execute(
            "INSERT INTO notification (id, tenant_id, user_id, category, priority, delivery_count, inbox_at)"
            " VALUES (%s, 'demo', 'ana', 'c', 1, 1, now())",
            (str(mint()[0]),),
        )
    assert call(api, "PUT", "read-all", json={"user_id": "ana"}).get_json()["updated"] == 1
    other.commit()
    other.close()
    cache_parts(api.settings).cache.invalidate(_unread(), ("demo", "ana"))
    assert unread(api) == 1


def _unread() -> Any:
    from app.cache.namespaces import UNREAD

    return UNREAD


def test_a_deleted_notification_is_gone_for_all_but_an_administrator(api: Api, rows: Rows) -> None:
    """404 everywhere and in no list; what was not sent is called off; an administrator shows it again."""
    identifier = send(api, channels=["IN_APP", "SMS"])
    ana = api.bearer(role=Role.USER, subject="ana")
    assert call(api, "DELETE", identifier, api.bearer(role=Role.USER, subject="bea")).status_code == 404
    assert call(api, "DELETE", identifier, ana).status_code == 204
    assert dict(rows("SELECT channel, status FROM delivery")) == {"IN_APP": "DELIVERED", "SMS": "CANCELLED"}  # type: ignore[arg-type]
    for method, path in (
        *(("GET", ""), ("DELETE", ""), ("PUT", "/read"), ("PUT", "/seen"), ("PUT", "/archived")),
        *(("DELETE", "/read"), ("DELETE", "/archived"), ("POST", "/cancel")),
    ):
        assert call(api, method, identifier + path).status_code == 404, (method, path)
    assert (unread(api), inbox(api), api.get(PATH).get_json()["data"]) == (0, [], [])
    assert api.get(f"{PATH}/stats").get_json()["total"] == 0
    shown = api.client.get(f"{PATH}/{identifier}", headers=admin(api)).get_json()
    assert shown["deleted_at"].endswith("Z")
    for headers in (None, ana):
        refused = call(api, "POST", f"{identifier}/restore", headers)
        assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_ROLE_NOT_ALLOWED")
    for _ in range(2):
        restored = call(api, "POST", f"{identifier}/restore", admin(api))
        assert (restored.status_code, restored.get_json()["deleted_at"]) == (200, None)
    assert (unread(api), inbox(api)) == (1, [identifier])
    assert dict(rows("SELECT channel, status FROM delivery"))["SMS"] == "CANCELLED"  # type: ignore[arg-type]
    assert call(api, "POST", f"{identifier}/restore", api.bearer("other", role=Role.ADMIN)).status_code == 404


def test_nobody_marks_what_is_not_theirs(api: Api, rows: Rows) -> None:
    """Another user, another tenant, and no scope."""
    identifier = send(api)
    bea = api.bearer(role=Role.USER, subject="bea")
    for headers in (bea, api.bearer("other")):
        for method, path in (("PUT", "seen"), ("PUT", "read"), ("PUT", "archived"), ("DELETE", "read")):
            assert call(api, method, f"{identifier}/{path}", headers).status_code == 404
    reader = api.bearer(scope="notifications:read")
    assert call(api, "PUT", f"{identifier}/read", reader).status_code == 403
    assert rows("SELECT FROM notification WHERE seen_at IS NOT NULL OR read_at IS NOT NULL") == []
    assert call(api, "PUT", "nonsense/read").status_code == 404


def test_statistics_count_by_status_channel_category_and_day(api: Api, rows: Rows) -> None:
    """For a user and for the tenant; deliveries by channel; a range that is empty or too long is refused."""
    send(api)
    send(api, channels=["IN_APP", "SMS"], category="news")
    send(api, user="bea", channels=["SMS"])
    rows("UPDATE delivery SET status = 'FAILED', error_code = 'x' WHERE user_id = 'bea'")
    today = datetime.now(UTC).date().isoformat()
    sums = api.get(f"{PATH}/stats").get_json()
    assert sums["total"] == 3
    assert sums["by_status"] == {"COMPLETED": 1, "IN_PROGRESS": 1, "FAILED": 1}
    assert sums["by_channel"] == {"IN_APP": 2, "SMS": 2}
    assert sums["by_category"] == {"security": 2, "news": 1}
    assert sums["by_day"] == {today: 3}
    assert api.get(f"{PATH}/stats?user_id=bea").get_json()["by_status"] == {"FAILED": 1}
    assert api.get(f"{PATH}/stats?to=2020-01-01T00:00:00Z").get_json()["total"] == 0
    for query in ("from=2020-01-01T00:00:00Z", "from=2030-01-01T00:00:00Z&to=2029-01-01T00:00:00Z"):
        refused = api.get(f"{PATH}/stats?{query}")
        assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_RANGE_INVALID")
    document = api.get("/openapi.json").get_json()
    schema = {"$ref": "#/components/schemas/StatisticsView", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(sums)


def test_a_count_that_takes_too_long_says_to_ask_for_less(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """422 with the way out, and the connection serves the next request."""
    from app.db import stats

    slow = stats.OF_TENANT.replace("FROM delivery d", "FROM delivery d, pg_sleep(3)", 1)
    monkeypatch.setattr(stats, "OF_TENANT", slow)
    monkeypatch.setattr("app.services.statistics.TENANT_SECONDS", 0.05)
    send(api)
    refused = api.get(f"{PATH}/stats")
    assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_RANGE_TOO_LARGE")
    assert api.get(PATH).status_code == 200


@pytest.fixture
def news(redis_client: "redis.Redis") -> Iterator[Callable[[int], list[dict[str, Any]]]]:
    """What is published for ana: waits for so many messages."""
    with redis_client.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(inbox_channel("demo", "ana"))
        eventually(lambda: redis_client.pubsub_numsub(inbox_channel("demo", "ana"))[0][1] == 1)
        heard: list[dict[str, Any]] = []

        def wait(count: int) -> list[dict[str, Any]]:
            def more() -> bool:
                message = subscription.get_message(timeout=0.1)
                if message:
                    heard.append(json.loads(message["data"]))
                return len(heard) >= count

            eventually(more)
            return heard

        yield wait


def test_the_news_of_an_inbox_is_told(api: Api, news: Callable[[int], list[dict[str, Any]]]) -> None:
    """After each commit, with ids only; what changed nothing, another user's and a replay say nothing."""
    identifier = send(api, metadata={"secret": "x"})
    send(api, user="bea")
    for method, path in (("PUT", "read"), ("PUT", "read"), ("PUT", "archived"), ("DELETE", "archived")):
        call(api, method, f"{identifier}/{path}")
    call(api, "DELETE", f"{identifier}/read")
    call(api, "PUT", "read-all", json={"user_id": "ana"})
    call(api, "DELETE", identifier)
    call(api, "POST", f"{identifier}/restore", admin(api))
    events = ["created", "read", "archived", "unarchived", "unread", "read_all", "deleted", "restored"]
    heard = news(len(events))
    assert [each["event"] for each in heard] == [f"notification.{event}" for event in events]
    assert {each["id"] for each in heard} == {identifier, None}
    assert all(set(each) == {"event", "id", "at"} for each in heard)


def test_without_redis_everything_works_and_nothing_waits(make_api: Callable[..., Api]) -> None:
    """A cache that is away costs no error and no time; counts come from the rows."""
    api = make_api()
    identifier = send(api)
    assert unread(api) == 1
    began = time.monotonic()
    for _ in range(20):
        call(api, "PUT", f"{identifier}/read")
        assert unread(api) == 0
        call(api, "DELETE", f"{identifier}/read")
        assert unread(api) == 1
    assert time.monotonic() - began < 5


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["send", "read", "unread", "archive", "unarchive", "delete", "restore", "all", "evict", "look", "race"]
        ),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=25,
)
_PATHS = {
    "read": ("PUT", "/read"), "unread": ("DELETE", "/read"), "archive": ("PUT", "/archived"),
    "unarchive": ("DELETE", "/archived"), "delete": ("DELETE", ""), "restore": ("POST", "/restore"),
}  # fmt: skip


def test_the_count_never_drifts_from_the_rows(api: Api, rows: Rows, redis_client: "redis.Redis") -> None:
    """Any order of arrivals, marks, deletions, evictions and looks, some of them at once: the count is the rows'.

    Fails when any write leaves the cache alone, and when a mark is set after the commit only (see the races).
    """
    users = iter(range(10_000))

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def run(steps: list[tuple[str, int]]) -> None:
        user = f"user-{next(users)}"
        made = [send(api, user)]

        def step(kind: str, number: int, client: Any) -> None:
            identifier = made[number % len(made)]
            if kind == "send":
                made.append(send(api, user))
            elif kind == "all":
                client.put(f"{PATH}/read-all", headers=admin(api), json={"user_id": user})
            elif kind == "evict":
                redis_client.flushall()
            elif kind in _PATHS:
                method, path = _PATHS[kind]
                client.open(f"{PATH}/{identifier}{path}", method=method, headers=admin(api))
            else:
                client.get(f"{PATH}/unread-count?user_id={user}", headers=admin(api))

        with ThreadPoolExecutor(4) as pool:
            for kind, number in steps:
                if kind == "race":
                    kinds = ("read", "look", "unread", "look", "send", "look", "all", "look")
                    futures = [pool.submit(step, each, number, api.app.test_client()) for each in kinds]
                    for future in futures:
                        future.result(20)
                else:
                    step(kind, number, api.client)
                (row,) = rows(
                    "SELECT count(*) FROM notification WHERE user_id = %(user)s AND inbox_at IS NOT NULL"
                    " AND read_at IS NULL AND archived_at IS NULL AND deleted_at IS NULL",
                    user=user,
                )
                assert unread(api, user) == row[0], steps
                assert unread(api, user) == row[0], steps

    run()
