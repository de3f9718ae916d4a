"""Batches over the API, with the expander run by hand."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from werkzeug.test import TestResponse

from app.domain.callers import Role
from app.services.batches.expand import Expand
from tests.batch_parts import add_users, batch, made, make_expander
from tests.integration.api.conftest import Api, error_of
from tests.pipeline_parts import sql
from tests.user_rows import add_device, add_user

PATH = "/v1/notifications/batch"
_keys = itertools.count(1)


def to_segment(**chosen: Any) -> dict[str, Any]:
    """A batch of one e-mail to every active user of the tenant."""
    return {
        "category": "news",
        "channels": ["EMAIL"],
        "content": {"title": "Sale", "body": "Everything must go."},
        "segment": {},
    } | chosen


def to_list(*rows: dict[str, Any], **chosen: Any) -> dict[str, Any]:
    """A batch of one SMS to those who are listed."""
    body = to_segment(channels=["SMS"], recipients=list(rows)) | chosen
    del body["segment"]
    return body


class Batches:
    """Calls the routes of batches as a tenant."""

    def __init__(self, api: Api, tenant: str = "demo") -> None:
        self.api = api
        self.tenant = tenant

    def post(self, body: Any, key: str | None = None, **headers: str) -> TestResponse:
        sent = self.api.bearer(self.tenant) | {"Idempotency-Key": key or f"batch-{next(_keys)}"} | headers
        return self.api.client.post(PATH, data=orjson.dumps(body), headers=sent, content_type="application/json")

    def accepted(self, body: Any) -> str:
        answer = self.post(body)
        assert answer.status_code == 202, answer.get_json()
        return str(answer.get_json()["id"])

    def get(self, path: str = "") -> TestResponse:
        return self.api.client.get(f"{PATH}{path}", headers=self.api.bearer(self.tenant))

    def view(self, identifier: str) -> dict[str, Any]:
        answer = self.get(f"/{identifier}")
        assert answer.status_code == 200, answer.get_json()
        return dict(answer.get_json())

    def do(self, identifier: str, verb: str) -> TestResponse:
        return self.api.client.post(f"{PATH}/{identifier}/{verb}", headers=self.api.bearer(self.tenant))

    def put(self, identifier: str, offset: int, data: bytes, kind: str = "text/csv") -> TestResponse:
        return self.api.client.put(
            f"{PATH}/{identifier}/rows?offset={offset}",
            data=data,
            content_type=kind,
            headers=self.api.bearer(self.tenant),
        )

    def lines(self, identifier: str, what: str) -> list[dict[str, Any]]:
        """Return all lines of a report, page after page."""
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            answer = self.get(f"/{identifier}/{what}{more}")
            assert answer.status_code == 200, answer.get_json()
            found += [orjson.loads(line) for line in answer.get_data().splitlines()]
            cursor = answer.headers.get("Next-Cursor")
            if cursor is None:
                return found
            more = f"{'&' if '?' in what else '?'}cursor={cursor}"


@pytest.fixture
def batches(api: Api) -> Batches:
    return Batches(api)


@pytest.fixture
def expander(database_url: str) -> Iterator[Expand]:
    """An expander with chunks of ten."""
    made = make_expander(database_url, chunk=10)
    yield made
    made.engine.dispose()


def test_a_segment_goes_to_whom_it_means_and_to_nobody_else(batches, expander, engine):
    """Only ACTIVE users who fit all conditions, of this tenant, who were there when it was accepted."""
    add_users(engine, 40)
    add_users(engine, 10, tenant="other")
    add_user(engine, "gone", status="INACTIVE")
    segment = {"locales": ["pt"], "attributes": {"plan": {"in": ["gold", "x"]}, "n": {"exists": True}}}
    identifier = batches.accepted(to_segment(segment=segment, channels=["SMS"]))
    add_user(engine, "u0000010b")
    while expander.step():
        pass
    assert [user for user, _ in made(engine, identifier)] == ["u0000010", "u0000020", "u0000030", "u0000040"]
    view = batches.view(identifier)
    assert view["state"] == "COMPLETED"
    assert view["progress"] | {"rows_per_second": 0} == {
        "total": 4,
        "read": 4,
        "notifications": 4,
        "rejected": 0,
        "suppressed": {},
        "rows_per_second": 0,
        "seconds_left": None,
    }


def test_what_a_batch_says_is_read_from_the_batch(batches, expander, engine):
    """A notification of a segment holds nothing of its own, and shows what its batch says.

    Fails when READ leaves the batch out, or a row copies its content.
    """
    add_users(engine, 3)
    identifier = batches.accepted(to_segment())
    expander.run(10)
    rows = sql(engine, "SELECT id::text, sealed FROM notification WHERE batch_id = %(id)s::uuid", id=identifier)
    assert [bytes(sealed) for _, sealed in rows] == [b"", b"", b""]
    shown = batches.api.read(rows[0][0]).get_json()
    assert shown["content"] == {"title": "Sale", "body": "Everything must go."}
    assert shown["batch_id"] == identifier


def test_a_suppressed_user_is_counted_by_reason_and_listed(batches, expander, engine):
    """Whoever has no address gets a notification without deliveries: it says why, and so does the list."""
    add_users(engine, 10)
    identifier = batches.accepted(to_segment())
    expander.run(10)
    view = batches.view(identifier)
    assert view["progress"]["suppressed"] == {"no_address": 2}
    assert view["deliveries"]["total"] == view["deliveries"]["waiting"] == 8
    listed = batches.lines(identifier, "recipients?state=suppressed&limit=1")
    assert [line["user_id"] for line in listed] == ["u0000005", "u0000010"]
    assert listed[0]["suppressed"] == [{"channel": "EMAIL", "reason": "no_address"}]


def test_listed_recipients_say_what_is_their_own(batches, expander, engine):
    """An explicit address and a payload of one row are sealed in its notification, bound to it."""
    add_user(engine, "known", phone="+447700900001")
    rows = [
        {"user_id": "a", "recipients": {"SMS": "+447700900000"}, "payload": {"code": "1"}},
        {"user_id": "known"},
        {"user_id": "nobody"},
        {"user_id": 7, "recipients": {"SMS": "12"}},
    ]
    identifier = batches.accepted(to_list(*rows))
    expander.run(10)
    view = batches.view(identifier)
    assert (view["state"], view["progress"]["notifications"], view["progress"]["rejected"]) == ("COMPLETED", 2, 2)
    errors = batches.lines(identifier, "errors?limit=1")
    assert [(line["row"], line["user_id"], line["code"]) for line in errors] == [
        (3, "nobody", "user_not_found"),
        (4, "7", "recipient_invalid"),
    ]
    listed = batches.lines(identifier, "recipients?state=waiting")
    (own,) = [line for line in listed if line["user_id"] == "a"]
    assert batches.api.read(own["notification_id"]).get_json()["recipients"]["SMS"] == "+44*****0000"


def test_three_spellings_of_one_number_are_one_message(batches, expander, engine):
    """A list that names a recipient twice reaches them once, in whatever chunk the second one comes.

    Case H11. Fails without the table of who was named before: chunks know nothing of each other.
    """
    spellings = ["+49 (0) 209 22334455", "+4920922334455", "+49-209-22334455"]
    rows = [{"user_id": f"u{n}", "recipients": {"SMS": text}} for n, text in enumerate(spellings)]
    rows[2:2] = [{"user_id": f"x{n}", "recipients": {"SMS": f"+4477009{n:05d}"}} for n in range(20)]
    rows.append({"user_id": "rome", "recipients": {"SMS": "+39 06 12345678"}})
    identifier = batches.accepted(to_list(*rows))
    expander.run(10)
    assert len(made(engine, identifier)) == 22
    assert [line["code"] for line in batches.lines(identifier, "errors")] == ["duplicate", "duplicate"]


def test_a_million_would_be_accepted_as_fast_as_ten(batches, engine):
    """The request stores a filter and reads no user: its statements do not depend on how many there are."""
    answer = batches.post(to_segment())
    assert answer.status_code == 202
    assert answer.get_json()["total"] is None
    assert batch(engine, answer.get_json()["id"])["made_count"] == 0


def test_a_key_makes_one_batch(batches, engine):
    """A repeated request gets the first answer; another body under the key is refused."""
    first, again = batches.post(to_segment(), "k"), batches.post(to_segment(), "k")
    assert again.get_data() == first.get_data()
    assert again.headers["Idempotency-Replayed"] == "true"
    other = batches.post(to_segment(category="other"), "k")
    assert (other.status_code, error_of(other)["code"]) == (422, "DOMAIN_IDEMPOTENCY_KEY_REUSED")
    assert sql(engine, "SELECT count(*) FROM batch") == [(1,)]


def test_a_batch_is_low_unless_asked(batches):
    """Campaigns wait behind everything else."""
    assert batches.view(batches.accepted(to_segment()))["priority"] == "LOW"
    assert batches.view(batches.accepted(to_segment(priority="NORMAL")))["priority"] == "NORMAL"


@pytest.mark.parametrize(
    "change",
    [
        {"segment": None},
        {"segment": {}, "recipients": [{"user_id": "1"}]},
        {"segment": {"locale": "pt"}},
        {"segment": {"locales": []}},
        {"segment": {"locales": ["pt'--"]}},
        {"segment": {"attributes": {"a": {}}}},
        {"segment": {"attributes": {"a": {"is_in": ["x"]}}}},
        {"segment": {"attributes": {"a": {"equals": {"b": 1}}}}},
        {"segment": {"attributes": {f"a{n}": {"exists": True} for n in range(21)}}},
        {"segment": {"seen_after": "yesterday"}},
        {"segment": {"has_address": ["FAX"]}},
        {"canary": {"percent": 5, "count": 5}},
        {"canary": {"percent": 0}},
        {"canary": {"count": 5, "max_failure_rate": 1.5}},
        {"upload": {"format": "xlsx"}, "segment": None},
        {"channels": []},
        {"channels": ["EMAIL", "EMAIL"]},
        {"metadata": {"a": [1]}},
        {"unknown": 1},
    ],
)
def test_what_does_not_fit_is_refused(batches, change):
    """400 with the field, never 5xx."""
    body = {name: value for name, value in (to_segment() | change).items() if value is not None}
    answer = batches.post(body)
    assert answer.status_code == 400, answer.get_json()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"content": {"title": "x", "body": " "}}, "DOMAIN_CONTENT_EMPTY"),
        ({"content": {"title": "", "body": "x"}}, "DOMAIN_CONTENT_EMPTY"),
        ({"scheduled_at": "2999-01-01T00:00:00Z"}, "DOMAIN_SCHEDULE_TOO_FAR"),
    ],
)
def test_what_could_never_be_sent_is_refused(batches, change, code):
    """The shared part is held to the rules of a single notification."""
    answer = batches.post(to_segment() | change)
    assert (answer.status_code, error_of(answer)["code"]) == (422, code)


def test_ten_thousand_recipients_fit_into_a_request(batches, expander, engine):
    """The list is stored as it came, in one statement; one more is refused."""
    rows = [{"user_id": f"u{n}", "recipients": {"SMS": f"+4477009{n:05d}"}} for n in range(10_000)]
    identifier = batches.accepted(to_list(*rows))
    assert batches.view(identifier)["progress"]["total"] == 10_000
    assert batches.post(to_list(*rows, {"user_id": "one more"})).status_code == 400
    expander.chunk = 1000
    expander.run(60)
    assert batch(engine, identifier)["made_count"] == 10_000
    assert sql(engine, "SELECT count(*) FROM batch_piece") == [(0,)]


def test_another_tenant_does_not_know_the_batch(batches, api, expander, engine):
    """Neither to look at, nor to change, nor to fill."""
    add_users(engine, 3)
    identifier = batches.accepted(to_segment())
    upload = batches.accepted({**to_list(), "upload": {"format": "csv"}, "recipients": None} | {})
    other = Batches(api, "other")
    for verb in ("pause", "resume", "cancel", "recall", "start"):
        assert other.do(identifier, verb).status_code == 404
    for path in ("", "/errors", "/recipients"):
        assert other.get(f"/{identifier}{path}").status_code == 404
    assert other.put(upload, 0, b"user_id\n1\n").status_code == 404
    assert other.get().get_json()["data"] == []
    assert len(batches.get().get_json()["data"]) == 2


def test_a_person_sends_no_batch(api):
    """A token of the role USER is refused, whatever its scopes."""
    headers = api.bearer(role=Role.USER) | {"Idempotency-Key": "k"}
    answer = api.client.post(PATH, json=to_segment(), headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "AUTH_ROLE_NOT_ALLOWED")


def test_batches_are_listed_newest_first_page_by_page(batches):
    """The cursor goes on where a page ended."""
    made = [batches.accepted(to_segment()) for _ in range(5)]
    seen: list[str] = []
    path = "?limit=2"
    while path:
        page = batches.get(path).get_json()
        seen += [row["id"] for row in page["data"]]
        path = f"?limit=2&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert seen == made[::-1]


def test_a_tenant_has_only_so_many_open_batches(make_api: Callable[..., Api]):
    """Beyond the limit a new one is refused; a repeated request finds its answer all the same."""
    batches = Batches(make_api(batch_open_limit=2))
    first = batches.post(to_segment(), "first")
    batches.accepted(to_segment())
    refused = batches.post(to_segment())
    assert (refused.status_code, error_of(refused)["code"]) == (422, "DOMAIN_BATCH_LIMIT")
    assert batches.post(to_segment(), "first").get_data() == first.get_data()
    assert batches.do(first.get_json()["id"], "cancel").status_code == 200
    assert batches.post(to_segment()).status_code == 202


def test_a_push_goes_to_each_device_of_a_segment(batches, expander, engine):
    """As for a single notification: the same plan decides."""
    for user in ("a", "b", "c"):
        add_user(engine, user)
    for token in ("1", "2"):
        add_device(engine, "a", token)
    add_device(engine, "b", "3", is_muted=True)
    sql(engine, "UPDATE app_user SET created_at = now() - interval '1 hour'")
    identifier = batches.accepted(to_segment(channels=["PUSH", "IN_APP"]))
    expander.run(10)
    assert made(engine, identifier) == [("a", 3), ("b", 1), ("c", 1)]
    view = batches.view(identifier)
    assert view["progress"]["suppressed"] == {"devices_muted": 1, "no_device": 1}
    assert (view["deliveries"]["sent"], view["deliveries"]["waiting"]) == (3, 2)
