"""What is refused, and how: no input is answered with a 5xx, and nothing of a refused one is stored.

Each test sends all inputs of its case to one application, so that the case costs one database.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Row
from werkzeug.test import TestResponse

from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.sealed import content_of

Rows = Callable[..., list[Row[Any]]]

MAIL = sms(channels=["EMAIL"], recipients={"EMAIL": "ok@sandbox.example.com"})


@pytest.fixture(autouse=True)
def nothing_is_stored(request: pytest.FixtureRequest, rows: Rows) -> Iterable[None]:
    """Look, after each test, that no refused input left a row."""
    yield
    accepted = request.node.get_closest_marker("parametrize") is None and "accepted" in request.node.name
    if not accepted:
        assert not rows("SELECT FROM notification")
        assert not rows("SELECT FROM idempotency_key")


def content(title: str = "Hello", body: str = "hello") -> dict[str, Any]:
    return {"content": {"title": title, "body": body}}


def refused(response: TestResponse, status: int | set[int], *fields: str, what: object = "") -> dict[str, Any]:
    """The error of a refused request, after a look at its status and at the fields that it names."""
    statuses = {status} if isinstance(status, int) else status
    assert response.status_code in statuses, (what, response.status_code, response.text[:300])
    error = error_of(response)
    for field in fields:
        assert field in [each["field"] for each in error["details"]], (what, error)
    return error


def test_line_breaks_and_control_characters_have_no_place_in_a_title(api: Api) -> None:
    """Case G01. A title becomes a header of a mail; in the API it is 422."""
    for title in (
        "Hi\r\nBcc: x@example.net",
        "a\nb",
        "a\rb",
        "tab\there",
        "bell\x07",
        "\x7f",
        "nel\x85",
        "ls\u2028",
    ):
        refused(api.post(MAIL | content(title)), 422, "content.title", what=title)
    for field in ("user_id", "category"):
        refused(api.post(sms(**{field: "a\r\nb"})), 400, field)


def test_nul_is_named_wherever_it_is(api: Api) -> None:
    """Case G13. PostgreSQL stores it neither in text nor in jsonb."""
    cases: list[tuple[dict[str, Any], str]] = [
        (content("a\0b"), "content.title"),
        (content(body="a\0b"), "content.body"),
        ({"metadata": {"a\0b": "x"}}, "metadata.a\0b"),
        ({"metadata": {"k": "\0"}}, "metadata.k"),
        ({"payload": {"list": ["x", {"deep": "\0"}]}}, "payload.list.1.deep"),
        ({"user_id": "\0"}, "user_id"),
        ({"recipients": {"SMS": "+4477\x0000900000"}}, "recipients.SMS"),
    ]
    for change, field in cases:
        refused(api.post(sms(**change)), 400, field, what=change)
    refused(api.get(f"{PATH}/a%00b"), 404)
    refused(api.get(f"{PATH}/01a22d60-47d0-79a7-9147-1bc22276754c?status=a%00b"), 400)
    refused(api.client.get(PATH + "/%00", headers=api.bearer()), 404)


def test_an_escaped_backslash_before_u0000_is_accepted_as_text(api: Api) -> None:
    r"""The six characters \u0000 are not a NUL when the backslash is escaped."""
    assert api.post(sms(**content(body=r"\u0000"))).status_code == 202


def test_half_a_surrogate_pair_is_named_wherever_it_is(api: Api) -> None:
    """Case G15. JSON can spell it, nothing that follows can encode it."""
    cases: list[tuple[dict[str, Any], str]] = [
        (content(body="ok \ud83d"), "content.body"),
        (content("\udc00"), "content.title"),
        ({"metadata": {"\ud83d": 1}}, "metadata.\\ud83d"),
        ({"payload": {"a": [{"b": "\udfff"}]}}, "payload.a.0.b"),
    ]
    for change, field in cases:
        raw = json.dumps(sms(**change)).encode()
        assert refused(api.post(raw), 400, field, what=change)["code"] == "VALIDATION_TEXT"
    refused(api.post(b'{"user_id": "\xed\xa0\x80"}'), 400)


def test_a_message_with_nothing_in_it_is_refused(api: Api) -> None:
    """Case G17. Blank bodies, and e-mails without a subject, are for the caller to mend."""
    for body in ("", "   ", "\n\t ", "\u2003"):
        refused(api.post(sms(**content(body=body))), 422, "content.body", what=repr(body))
    for title in ("", "  "):
        refused(api.post(MAIL | content(title)), 422, "content.title", what=repr(title))


def test_unknown_and_repeated_arguments_are_refused(api: Api) -> None:
    """Case K01. A typing error must not be taken for a default."""
    refused(api.post(sms(chanel="sms")), 400, "chanel")
    refused(api.post(sms(content={"title": "t", "body": "b", "html": "x"})), 400, "content.html")
    refused(api.post(sms(recipients={"SMS": "+447700900000", "FAX": "1"})), 400, "recipients.FAX")
    some = "01a22d60-47d0-79a7-9147-1bc22276754c"
    refused(api.get(f"{PATH}/{some}?statu=failed"), 400, "statu")
    refused(api.get(f"{PATH}/{some}?limit=5&limit=6"), 400, "limit")
    refused(api.client.post(f"{PATH}?dry_run=true", json=sms(), headers=api.bearer()), 400, "dry_run")


def test_numbers_that_json_does_not_have_are_refused(api: Api) -> None:
    """Case K03. NaN and the infinities, spelled or by overflow."""
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"):
        for field in (b'"payload":{"x":%b}', b'"metadata":{"x":%b}', b'"expires_in":%b'):
            raw = json.dumps(sms()).encode()[:-1] + b"," + field % number + b"}"
            refused(api.post(raw), 400, what=raw)


def test_huge_and_impossible_numbers_are_refused(api: Api) -> None:
    """Case K05. None of them reaches an integer column."""
    for number in (
        "9" * 5000,
        str(10**30),
        str(2**63),
        "-1",
        "0",
        str(2**31),
        str(2**53 + 1),
        "1.5",
        "1e3",
        "true",
    ):
        raw = json.dumps(sms()).encode()[:-1] + f',"expires_in":{number}}}'.encode()
        refused(api.post(raw), 400, what=number[:40])
    for number in ("9" * 5000, str(10**30), str(2**64)):
        raw = json.dumps(sms()).encode()[:-1] + f',"metadata":{{"n":{number}}}}}'.encode()
        refused(api.post(raw), 400, what=number[:40])
        refused(api.post(json.dumps(sms()).replace('"u1"', number).encode()), 400, what=number[:40])
    for identifier in ("99999999999999999999", "-1", "x", "{01a22d60-47d0-79a7-9147-1bc22276754c}", "a" * 5000):
        refused(api.get(f"{PATH}/{identifier}"), 404, what=identifier[:40])


def test_bodies_that_cannot_be_decoded_are_refused(api: Api) -> None:
    """Case K07. Only plain JSON in UTF-8; everything else is 400, or 415 when it is announced."""
    good = json.dumps(sms()).encode()
    for raw in (b'{"a":"\xff"}', b"\xef\xbb\xbf" + good, good.decode().encode("utf-16")):
        refused(api.post(raw), 400, what=raw[:10])
    for kind in (
        "application/json; charset=utf-16",
        "application/json; charset=bogus",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application/json-patch+json",
    ):
        refused(api.post(good, **{"Content-Type": kind}), 415, what=kind)
    refused(api.post(gzip.compress(good), **{"Content-Encoding": "gzip"}), 415)
    refused(api.post(good, **{"Content-Encoding": "bogus"}), 415)


def test_charset_utf_8_is_accepted_when_it_is_named(api: Api) -> None:
    """Many clients send it."""
    response = api.post(json.dumps(sms()).encode(), **{"Content-Type": 'Application/JSON; charset="UTF-8"'})
    assert response.status_code == 202


def test_what_is_not_one_json_object_is_refused(api: Api) -> None:
    """Case K09. Broken JSON is not an empty object, and a list is not a notification."""
    for raw in (b'{"a":1,}', b"", b" ", b"{'a':1}", b"{}{}", b"{", b"\x00", b'{"a":1} x', b"nul"):
        assert refused(api.post(raw), 400, what=raw)["code"] == "VALIDATION_JSON"
    for raw in (b"null", b"[]", b'"x"', b"1", b"true", b"{}", b"[{}]"):
        assert refused(api.post(raw), 400, what=raw)["code"] == "VALIDATION_BODY"


def test_types_are_strict(api: Api) -> None:
    """Case K17. Nothing is guessed from another type, least of all a boolean."""
    wrong: list[tuple[str, list[Any]]] = [
        ("user_id", [True, False, None, 1.0, [], {}, ""]),
        ("category", [1, True, None, "", "x" * 65]),
        ("priority", ["high", 1, None, True, "URGENT", ""]),
        ("channels", ["SMS", [], None, {}, ["sms"], ["FAX"], [1], ["SMS", "SMS"], ["SMS"] * 5000]),
        ("expires_in", ["300", 300.0, True, [], {}]),
        ("content", ["x", [], None, {"title": "t"}, {"body": 1, "title": "t"}, {"body": True}, {"body": None}]),
        ("recipients", [[], "x", {"SMS": 447700900000}, {"SMS": ["+447700900000"]}]),
        ("metadata", [[], "x", {"k": []}, {"k": {}}, {"": 1}, {"k" * 65: 1}]),
        ("payload", [[], "x", 1]),
        ("template", [1, "", True]),
    ]
    for field, values in wrong:
        for value in values:
            refused(api.post(sms(**{field: value})), 400, what=(field, str(value)[:60]))


def test_a_time_needs_an_offset(api: Api) -> None:
    """Case E07. What a local time means is not for the server to guess."""
    for text in (
        "2026-12-24T09:00:00",
        "2026-12-24",
        "24.12.2026",
        "tomorrow",
        "",
        "1790000000",
        "2026-12-24T09:00Z",
    ):
        refused(api.post(sms(scheduled_at=text)), 400, "scheduled_at", what=text)
    for value in (1790000000, True, []):
        refused(api.post(sms(scheduled_at=value)), 400, "scheduled_at", what=value)


def test_times_that_do_not_exist_are_refused(api: Api) -> None:
    """Case E09. A leap second, a 13th month, an offset of 99 hours, a time before the first year in UTC."""
    for text in (
        "2016-12-31T23:59:60Z",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00+99:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "0000-01-01T00:00:00Z",
        "\uff12\uff10\uff12\uff16-01-01T00:00:00Z",
    ):
        refused(api.post(sms(scheduled_at=text)), 400, "scheduled_at", what=text)


def test_a_time_too_far_ahead_is_impossible(api: Api) -> None:
    """At most 60 days; a partition is made for every day of acceptance, not of sending, but a plan has an end."""
    late = datetime.now(UTC) + timedelta(days=60, hours=1)
    refused(api.post(sms(scheduled_at=late.isoformat())), 422, "scheduled_at")
    refused(api.post(sms(scheduled_at="9999-01-01T00:00:00Z")), 422, "scheduled_at")


def test_the_earliest_times_and_sixty_days_are_accepted(api: Api) -> None:
    """Both ends of what a time may be."""
    soon = datetime.now(UTC) + timedelta(days=59, hours=23)
    for text in (soon.isoformat(), "0001-01-01T00:00:00Z", "1969-07-20t20:17:40.123456789z"):
        assert api.post(sms(scheduled_at=text)).status_code == 202, text


def test_a_body_of_any_depth_or_size_is_answered(make_api: Callable[..., Api]) -> None:
    """Depth is 400 and size is 413, also for a body that is nothing but depth."""
    api = make_api(api_max_body_bytes=65_536)
    for depth in (17, 900, 1500, 30_000):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        raw = json.dumps(sms()).encode()[:-1] + b',"payload":' + nested + b"}"
        refused(api.post(raw), {400, 413}, what=depth)  # orjson reads 1,024 levels, but writes only 254
        refused(api.post(b"[" * depth + b"]" * depth), 400, what=depth)
        refused(api.post(b"[" * depth), 400, what=depth)
    assert refused(api.post(b" " * 65_537), 413)["code"] == "VALIDATION_BODY_TOO_LARGE"
    refused(api.post(sms(payload={"x": "y" * 40_000})), 400, "payload")
    refused(api.post(sms(metadata={"x": "y" * 9_000})), 400, "metadata")
    refused(api.post(sms(metadata={f"k{n}": n for n in range(51)})), 400, "metadata")
    refused(api.post(sms(metadata={"n": 1e300})), 400, "metadata")
    refused(api.post(sms(**content("t" * 256))), 400, "content.title")
    refused(api.post(sms(**content(body="b" * 10_001))), 400, "content.body")


def test_the_longest_texts_are_accepted(api: Api) -> None:
    """255 and 10,000 characters, whatever they take in bytes."""
    assert api.post(sms(**content("é" * 255, "😀" * 10_000))).status_code == 202


def test_each_channel_without_a_recipient_is_named(api: Api) -> None:
    """In-app needs none; the others are all named in one answer."""
    body = sms(channels=["SMS", "EMAIL", "PUSH", "IN_APP"], recipients={})
    error = refused(api.post(body), 422, "recipients.SMS", "recipients.EMAIL", "recipients.PUSH")
    assert error["code"] == "DOMAIN_USER_NOT_FOUND"
    assert len(error["details"]) == 3
    refused(api.post({k: v for k, v in sms().items() if k != "recipients"}), 422, "recipients.SMS")


def test_addresses_that_cannot_be_sent_to_are_named_but_not_repeated(api: Api) -> None:
    """422, and no address in the answer: answers are logged by others."""
    wrong = {
        "SMS": [
            "447700900000",
            "07700 900000",
            "0049 209 22334455",
            "+0",
            "+",
            "x",
            "+999123456789",
            "+44",
            "+1" * 20,
        ],
        "EMAIL": [
            "x",
            "a@b",
            "@example.com",
            "a@",
            "a b@example.com",
            "a@ex ample.com",
            "a@b\r\n.com",
            "a@-x.com",
        ],
        "PUSH": ["", "to ken", "tö", "\ttoken", "token\n"],
    }
    for channel, values in wrong.items():
        for value in values:
            response = api.post(MAIL | {"channels": [channel], "recipients": {channel: value}})
            error = refused(response, 422, f"recipients.{channel}", what=(channel, value))
            assert error["code"] == "DOMAIN_RECIPIENT_INVALID"
            assert len(value) < 4 or value not in response.text
    refused(api.post(sms(channels=["PUSH"], recipients={"PUSH": "x" * 4097})), 400, "recipients.PUSH")


def test_spellings_of_one_number_are_accepted_as_one(api: Api, rows: Rows) -> None:
    """Case H11. A trunk zero and blanks are dropped; Italy keeps its zero."""
    for text in (
        "+49 (0) 209 22334455",
        "+4920922334455",
        "+49 0209 22334455",
        "+39 06 12345678",
        "+447700900999",
    ):
        assert api.post(sms(recipients={"SMS": text})).status_code == 202, text
    stored = [content_of(each)["recipients"]["SMS"] for each in rows("SELECT * FROM notification ORDER BY id")]
    assert sorted(stored) == sorted(["+4920922334455"] * 3 + ["+390612345678", "+447700900999"])


def test_international_and_sandbox_addresses_are_accepted(api: Api, rows: Rows) -> None:
    """The domain is compared in lower case, and non-ASCII names are allowed in both parts."""
    given = ["fail-503x2@sandbox.example.com", "user@exämple.com", "ünï@example.com", "A.b+c@Example.COM"]
    for text in given:
        assert api.post(MAIL | {"recipients": {"EMAIL": text}}).status_code == 202, text
    body = MAIL | {"channels": ["PUSH"], "recipients": {"PUSH": "sandbox:" + "x" * 4088}}
    assert api.post(body).status_code == 202
    stored = [
        content_of(each)["recipients"].get("EMAIL") for each in rows("SELECT * FROM notification ORDER BY id")
    ]
    assert "A.b+c@example.com" in stored


def test_either_a_template_or_content(api: Api) -> None:
    """Both or neither break the schema; a template that does not exist is 422."""
    refused(api.post(sms(template="otp")), 400)
    without = {key: value for key, value in sms().items() if key != "content"}
    refused(api.post(without), 400)
    error = refused(api.post(without | {"template": "otp", "payload": {"code": "1"}}), 422, "template")
    assert error["code"] == "DOMAIN_TEMPLATE_NOT_FOUND"


def test_routes_and_methods_that_do_not_exist_keep_the_shape(api: Api) -> None:
    """404 and 405 by the framework look like every other error, and 405 says what is allowed."""
    refused(api.get("/v1/nothing"), 404)
    refused(api.get("/v1/notifications/"), 404)
    refused(api.get("//v1/notifications"), 404)
    response = api.client.delete(PATH, headers=api.bearer())
    refused(response, 405)
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS, POST"


def test_the_trace_of_the_caller_is_kept(api: Api) -> None:
    """`traceparent` gives the trace id of an error; a broken or all-zero one gives a fresh id."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    error = error_of(api.post(b"", traceparent=f"00-{trace}-00f067aa0ba902b7-01"))
    assert error["trace_id"] == trace
    for broken in ("x", f"00-{'0' * 32}-00f067aa0ba902b7-01", ""):
        assert error_of(api.post(b"", traceparent=broken))["trace_id"] not in {trace, "0" * 32}
