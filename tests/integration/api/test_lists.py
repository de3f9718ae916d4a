"""Lists: pages that lose and repeat nothing, filters, whose things one sees, and what a page reads."""

import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest
from sqlalchemy.engine import Engine, Row

from app.db import lists
from app.db.prepared import PLANNED, Prepared
from app.domain.callers import Role
from app.domain.ids import mint, minted_at
from app.domain.states import DeliveryState
from app.domain.summary import NotificationStatus, summarise
from app.services import listing
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.integration.rows import make_day, noon, put, utc_today
from tests.integration.test_relay_plans import kinds, scans

Rows = Callable[..., list[Row[Any]]]


def person(api: Api, user: str, tenant: str = "demo") -> dict[str, str]:
    return api.bearer(tenant, role=Role.USER, subject=user)


def walk(api: Api, headers: dict[str, str] | None = None, **query: Any) -> list[dict[str, Any]]:
    """Read all pages of a list."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = api.client.get(PATH, headers=headers or api.bearer(), query_string=query | cursor)
        assert answer.status_code == 200, answer.text
        found += answer.get_json()["data"]
        if answer.get_json()["next_cursor"] is None:
            return found
        cursor = {"cursor": answer.get_json()["next_cursor"]}


def fill(rows: Rows, ids: list[Any], tenant: str = "demo", user: str = "u1", **columns: str) -> None:
    extra = {"category": "'c'", "priority": "1", "delivery_count": "0"} | columns
    rows(
        f"INSERT INTO notification (id, tenant_id, user_id, created_at, {', '.join(extra)})"
        f" SELECT i, %(tenant)s, %(user)s, uuid_extract_timestamp(i), {', '.join(extra.values())}"
        " FROM unnest(%(ids)s::uuid[]) AS i",
        ids=[str(each) for each in ids],
        tenant=tenant,
        user=user,
    )


@pytest.mark.parametrize("limit", [1, 50, 99])
def test_rows_of_one_instant_are_all_there_once(api: Api, rows: Rows, limit: int) -> None:
    """Case K13. 500 rows share an instant; every page size shows each of them once, newest id first.

    Fails with a cursor on created_at alone.
    """
    ids = mint(500 if limit > 1 else 30)
    fill(rows, ids)
    shown = [each["id"] for each in walk(api, limit=limit, user_id="u1")]
    assert shown == [str(each) for each in sorted(ids, reverse=True)]
    assert [each["id"] for each in walk(api, limit=limit)] == shown


def test_the_order_of_ids_is_the_order_of_acceptance(api: Api, rows: Rows) -> None:
    """`created_at` is the millisecond inside the id, so a cursor on the id is one on (created_at, id).

    Fails when an accept takes the two from different clocks.
    """
    for number in range(5):
        api.post(sms(number, channels=["SMS", "IN_APP"]))
    for row in rows("SELECT id, created_at FROM notification UNION ALL SELECT id, created_at FROM delivery"):
        assert row.created_at == minted_at(row.id)


def test_a_list_shows_what_reading_one_shows(api: Api) -> None:
    """Every field of the item but the attempts, and the page fits the published schema."""
    identifier = api.post(sms(channels=["SMS", "IN_APP"], metadata={"order": "1"}, expires_in=60)).get_json()["id"]
    page = api.get(PATH).get_json()
    alone = api.read(identifier).get_json()
    del alone["deleted_at"]
    for delivery in alone["deliveries"]:
        del delivery["attempts"]
    assert page == {"data": [alone], "next_cursor": None}
    document = api.get("/openapi.json").get_json()
    schema = {"$ref": "#/components/schemas/NotificationList", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(page)


def test_a_page_holds_twenty_unless_asked(api: Api, rows: Rows) -> None:
    """And at most 100; a cursor is bound to its list and its user, and the last page has none."""
    fill(rows, mint(25))
    first = api.get(PATH).get_json()
    assert len(first["data"]) == 20
    second = api.get(f"{PATH}?cursor={first['next_cursor']}").get_json()
    assert (len(second["data"]), second["next_cursor"]) == (5, None)
    assert api.get(f"{PATH}?limit=101").status_code == 400
    for path, tenant in (
        (f"{PATH}?user_id=u1&", "demo"),
        (f"{PATH}?", "other"),
        ("/v1/inbox?user_id=u1&", "demo"),
    ):
        refused = api.get(f"{path}cursor={first['next_cursor']}", tenant)
        assert (refused.status_code, error_of(refused)["code"]) == (400, "VALIDATION_CURSOR")


def test_the_status_in_sql_is_the_status_of_the_domain(api: Api, engine: Engine) -> None:
    """Every pair and some triples of states: the filter finds a notification under the status that it shows.

    Fails when one of the two definitions changes alone.
    """
    combinations = [(), *itertools.combinations_with_replacement(DeliveryState, 1)]
    combinations += list(itertools.combinations_with_replacement(DeliveryState, 2))
    combinations += random.Random(7).sample(list(itertools.combinations_with_replacement(DeliveryState, 3)), 20)
    expected: dict[str, set[str]] = {status.value: set() for status in NotificationStatus}
    for states in combinations:
        identifier, _ = put(engine, *states)
        expected[summarise(states).value].add(str(identifier))
    for status, ids in expected.items():
        found = walk(api, status=status, limit=100)
        assert {each["id"] for each in found} == ids, status
        assert {each["status"] for each in found} == {status}


def test_filters_narrow_and_can_be_combined(api: Api) -> None:
    """By category, channel, user, range and unread; a filter that is misspelt is refused and widens nothing."""
    made = {}
    for name, user, channels, category in (
        ("a", "u1", ["SMS"], "security"),
        ("b", "u1", ["IN_APP"], "security"),
        ("c", "u2", ["IN_APP", "SMS"], "news"),
    ):
        answer = api.post(sms(user_id=user, channels=channels, category=category)).get_json()
        made[name] = answer["id"]
    created = api.read(made["b"]).get_json()["created_at"]

    def names(**query: Any) -> str:
        found = {each["id"] for each in walk(api, **query)}
        return "".join(name for name, identifier in made.items() if identifier in found)

    assert names() == "abc"
    assert names(category="security") == "ab"
    assert names(channel="SMS") == "ac"
    assert names(channel="IN_APP", category="security") == "b"
    assert names(user_id="u2") == "c"
    assert names(user_id="u2", channel="EMAIL") == ""
    assert names(unread="true") == "bc"
    assert "a" not in names(**{"from": created})
    assert "c" not in names(to=created)
    api.client.put(f"{PATH}/{made['b']}/read", headers=api.bearer())
    assert (names(unread="true"), names(unread="false")) == ("c", "b")
    for bad in (
        "statu=FAILED",
        "status=failed",
        "channel=FAX",
        "unread=1",
        "from=yesterday",
        "to=1969-01-01T00:00:00Z",
        "limit=5&limit=6",
        "user_id=",
        "user_id=%00",
        "category=%ED%A0%80%00",
        "from=99999-01-01T00:00:00Z",
    ):
        refused = api.get(f"{PATH}?{bad}")
        assert (refused.status_code, error_of(refused)["code"]) == (400, "VALIDATION_QUERY"), bad


def test_a_filter_that_matches_seldom_pages_on(api: Api, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at a bounded number of rows, may be empty, and its cursor goes on behind them: nothing is lost.

    Fails when a short page is taken for the last one.
    """
    monkeypatch.setattr(listing, "SCAN", 30)
    ids = sorted(mint(200))
    fill(rows, ids)
    rows("UPDATE notification SET category = 'rare' WHERE id = ANY(%(i)s::uuid[])", i=[str(ids[0]), str(ids[150])])
    assert [each["id"] for each in walk(api, category="rare")] == [str(ids[150]), str(ids[0])]
    first = api.get(f"{PATH}?category=rare&limit=10").get_json()
    assert first["data"] == []
    assert first["next_cursor"] is not None


def test_a_person_sees_only_what_is_theirs(api: Api) -> None:
    """Left out, `user_id` is the caller; another's is refused, in every list."""
    own = api.post(sms(user_id="ana", channels=["IN_APP"])).get_json()["id"]
    api.post(sms(user_id="bea", channels=["IN_APP"]))
    ana = person(api, "ana")
    for path in (PATH, f"{PATH}?user_id=ana", "/v1/inbox", "/v1/users/ana/inbox"):
        assert [each["id"] for each in api.client.get(path, headers=ana).get_json()["data"]] == [own]
    paths = (
        f"{PATH}?user_id=bea",
        "/v1/inbox?user_id=bea",
        "/v1/users/bea/inbox",
        f"{PATH}/stats?user_id=bea",
        f"{PATH}/unread-count?user_id=bea",
    )
    for path in paths:
        refused = api.client.get(path, headers=ana)
        assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_USER_MISMATCH"), path
    for path in ("/v1/inbox", f"{PATH}/unread-count"):
        assert error_of(api.get(path))["code"] == "VALIDATION_QUERY"


def test_a_thousand_crossed_requests_show_nothing_of_others(api: Api) -> None:
    """Two tenants with the same two users, every route that reads: no id of anybody else is in any answer.

    Fails without the policies, or when a list forgets its user.
    """
    owners = [(tenant, user) for tenant in ("demo", "other") for user in ("ana", "bea")]
    made: dict[tuple[str, str], list[str]] = {owner: [] for owner in owners}
    for tenant, user in owners * 3:
        body = sms(user_id=user, channels=["IN_APP", "SMS"], content={"title": tenant, "body": user})
        made[tenant, user].append(api.post(body, tenant=tenant).get_json()["id"])
    everything = {identifier for ids in made.values() for identifier in ids}
    chance = random.Random(4)
    for _ in range(1000):
        tenant, user = chance.choice(owners)
        as_person = chance.random() < 0.6
        headers = person(api, user, tenant) if as_person else api.bearer(tenant)
        allowed = {
            i
            for owner in owners
            if owner[0] == tenant and (not as_person or owner[1] == user)
            for i in made[owner]
        }
        target = chance.choice(sorted(everything))
        whose = chance.choice(["ana", "bea"])
        path = chance.choice(
            [
                PATH,
                f"{PATH}?user_id={whose}",
                f"{PATH}?channel=SMS&limit=2",
                f"{PATH}?unread=true",
                f"{PATH}/{target}",
                f"/v1/inbox?user_id={whose}",
                f"/v1/users/{whose}/inbox",
                f"{PATH}/stats",
                f"{PATH}/unread-count?user_id={whose}",
                f"{PATH}/stats?user_id={whose}",
            ]
        )
        answer = api.client.get(path, headers=headers)
        assert answer.status_code in {200, 403, 404}, (path, answer.text)
        shown = {identifier for identifier in everything if identifier in answer.text}
        assert shown <= allowed | ({target} if answer.status_code == 404 else set()), path
        if path.endswith(target):
            assert (answer.status_code == 200) == (target in allowed)
        if "/stats" in path and answer.status_code == 200:
            mine = allowed if "user_id" not in path else set(made[tenant, whose])
            assert answer.get_json()["total"] == len(mine)
        if "unread-count" in path and answer.status_code == 200:
            assert answer.get_json()["unread"] == 3


STATEMENTS = [lists.LIST_OF_USER, lists.LIST_OF_TENANT, lists.INBOX, lists.COUNT_UNREAD, lists.END_OF_USER]


@pytest.mark.parametrize("statement", STATEMENTS, ids=[each.name for each in STATEMENTS])
def test_a_list_reads_indexes_in_their_order(engine: Engine, statement: Prepared) -> None:
    """Over two weeks of partitions that hold next to nothing: no scan of a table, no sort.

    Fails when the index of the tenant has no condition: it then serves one user with a walk over all of them.
    """
    for back in range(2, 14):
        make_day(engine, utc_today() - timedelta(days=back))
    values = {"tenant_id": "'demo'", "user_id": "'u1'", "before": f"'{mint()[0]}'", "scan": "1000", "limit": "21"}
    values |= {"low": "'00000000-0000-0000-0000-000000000000'", "archived": "false"}
    given = ", ".join(values.get(name, "NULL") for name in statement.types)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
        connection.exec_driver_sql(PLANNED)
        connection.exec_driver_sql(statement.prepare)
        explained = f"EXPLAIN (FORMAT JSON) EXECUTE {statement.name} ({given})"
        plan = connection.exec_driver_sql(explained).scalar_one()[0]["Plan"]
    used = scans(plan)
    index = "tenant_id_id_idx" if statement is lists.LIST_OF_TENANT else "tenant_id_user_id_id_idx"
    assert {kind for kind, _ in used} <= {"Index Scan", "Index Only Scan"}, used
    assert any(name.startswith(index) for _, name in used), used
    assert not kinds(plan) & {"Seq Scan", "Bitmap Heap Scan", "Hash Join"}
    if statement is not lists.COUNT_UNREAD:
        assert "Incremental Sort" not in kinds(plan)


def test_old_notifications_are_found(api: Api, engine: Engine) -> None:
    """A user whose notifications are all weeks old gets them, in order, and a range leaves the others out."""
    ids = []
    for back in (40, 20, 3):
        make_day(engine, utc_today() - timedelta(days=back))
        ids.append(str(put(engine, "SENT", at=noon(back))[0]))
    assert [each["id"] for each in walk(api, user_id="u", limit=2)] == ids[::-1]
    since = (datetime.now(UTC) - timedelta(days=25)).isoformat().replace("+00:00", "Z")
    assert [each["id"] for each in walk(api, user_id="u", **{"from": since})] == ids[:0:-1]
