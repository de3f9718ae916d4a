"""The simulator as a process: its outbox, its figures, its limits and its behaviour, over HTTP and SMTP."""

import json
import smtplib
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.sandbox_client import Sandbox

FIELDS = {"received_at", "channel", "provider", "recipient", "reference", "subject", "body", "outcome"}
FIELDS |= {"collapse_key", "ttl_seconds"}
FIGURES = {"calls", "accepted", "unique", "duplicates", "by_outcome", "max_in_any_second"}


def call(sandbox: Sandbox, method: str, path: str, body: object = None, accept: str = "application/json") -> Any:
    """Return status, headers and text; an error status is an answer too."""
    raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(sandbox.url + path, raw, {"Accept": accept}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def sms(sandbox: Sandbox, number: str = "000", reference: str = "r", path: str = "/sms", **more: object) -> Any:
    to = number if path == "/push" else f"+447700900{number}"
    return call(sandbox, "POST", path, {"to": to, "body": "hello", "reference": reference, **more})


@pytest.fixture
def steered(sandbox: Sandbox) -> Iterator[Sandbox]:
    yield sandbox
    call(sandbox, "PUT", "/limits", dict.fromkeys(("sms", "push", "email"), 0))
    call(sandbox, "PUT", "/behaviour", dict.fromkeys(("sms", "push", "email")))


def test_outbox_shows_the_newest_first_with_its_fields(sandbox):
    """What a script reads is exactly these fields."""
    for reference in ("one", "two", "three"):
        assert sms(sandbox, reference=reference)[0] == 202
    rows = sandbox.outbox()
    assert [row["reference"] for row in rows] == ["three", "two", "one"]
    assert all(set(row) == FIELDS for row in rows)
    assert rows[0]["received_at"].endswith("Z")


def test_outbox_filters_by_each_field_and_by_all(sandbox):
    """Filters narrow together; the limit is applied last."""
    sms(sandbox, "000", "a")
    sms(sandbox, "001", "b")
    sms(sandbox, "sandbox:ok", "c", path="/push", title="T")
    assert [row["reference"] for row in sandbox.outbox(channel="SMS")] == ["b", "a"]
    assert [row["reference"] for row in sandbox.outbox(channel="push")] == ["c"]
    assert [row["reference"] for row in sandbox.outbox(recipient="+447700900001")] == ["b"]
    assert [row["reference"] for row in sandbox.outbox(reference="a")] == ["a"]
    assert sandbox.outbox(reference="a", channel="PUSH") == []
    assert [row["reference"] for row in sandbox.outbox(limit=1)] == ["c"]
    assert sandbox.outbox(limit=0) == []


def test_outbox_is_a_page_for_people_and_json_on_request(sandbox):
    """A browser gets a page, a script says what it wants; what came in is escaped."""
    sms(sandbox, body="<script>alert(1)</script>")
    status, headers, page = call(sandbox, "GET", "/outbox", accept="text/html,*/*;q=0.8")
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/html")
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert json.loads(call(sandbox, "GET", "/outbox?format=json", accept="text/html")[2])[0]["reference"] == "r"


def test_stats_count_calls_outcomes_and_duplicates(sandbox):
    """In all, and per provider."""
    for number in ("000", "000", "400", "503"):
        sms(sandbox, number, reference=f"ref-{number}")
    sms(sandbox, "sandbox:ok", "p", path="/push")
    stats = sandbox.stats()
    assert set(stats) >= FIGURES
    assert (stats["calls"], stats["accepted"], stats["unique"], stats["duplicates"]) == (5, 3, 2, 1)
    assert stats["by_outcome"] == {"accepted": 3, "gone": 1, "failed": 1}
    assert 1 <= stats["max_in_any_second"] <= 5
    assert {name: each["calls"] for name, each in stats["providers"].items()} == {
        "sandbox-sms": 4,
        "sandbox-push": 1,
        "sandbox-smtp": 0,
    }


def test_delete_empties_outbox_figures_and_scripted_counts(sandbox):
    """The next run starts from nothing."""
    assert [sms(sandbox, "153")[0] for _ in range(2)] == [503, 202]
    assert call(sandbox, "DELETE", "/outbox")[0] == 204
    assert sandbox.outbox() == []
    assert (sandbox.stats()["calls"], sandbox.stats()["by_outcome"]) == (0, {})
    assert sms(sandbox, "153")[0] == 503


def test_counted_scripts_count_by_reference(sandbox):
    """Another message to the same number starts at its own first failure."""
    assert [sms(sandbox, "253", "a")[0] for _ in range(3)] == [503, 503, 202]
    assert sms(sandbox, "253", "b")[0] == 503


def test_scripted_throttle_is_about_the_recipient_and_the_limit_about_the_account(steered):
    """The adapter must be able to tell whom to slow."""
    status, headers, body = sms(steered, "429")
    assert (status, headers["Retry-After"]) == (429, "1")
    assert json.loads(body)["error"]["scope"] == "recipient"
    assert call(steered, "PUT", "/limits", {"SMS": 1})[0] == 200
    answers = [sms(steered, reference=str(n)) for n in range(3)]
    status, headers, body = answers[-1]
    assert (status, headers["Retry-After"]) == (429, "1")
    assert json.loads(body)["error"]["scope"] == "account"
    assert sms(steered, "sandbox:ok", path="/push")[0] == 202


def test_whole_provider_can_be_down_while_another_works(steered):
    """For outages: every call fails until the behaviour is taken back."""
    call(steered, "PUT", "/behaviour", {"sms": {"down": True}})
    assert (sms(steered)[0], sms(steered, "sandbox:ok", path="/push")[0]) == (503, 202)
    call(steered, "PUT", "/behaviour", {"sms": None})
    assert sms(steered)[0] == 202


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/limits", {"sms": -1}),
        ("/limits", {"fax": 1}),
        ("/limits", [1]),
        ("/behaviour", {"sms": {"explode": 1}}),
        ("/limits", b"{"),
    ],
)
def test_wrong_steering_is_refused_with_a_reason(sandbox, path, value):
    """A typo in a test must not silently steer nothing."""
    status, _, body = call(sandbox, "PUT", path, value)
    assert status == 400
    assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"{}", b'{"to": 1, "body": "x"}', b'{"to": "x"}', b"\xff", b'"x"']
)
def test_unreadable_message_is_400_and_counted(sandbox, body):
    """No body makes the simulator fail."""
    assert call(sandbox, "POST", "/sms", body)[0] == 400
    assert sandbox.stats()["by_outcome"] == {"invalid": 1}


def test_other_addresses_and_methods_are_told_apart(sandbox):
    """404 and 405, and the root leads to the outbox."""
    assert call(sandbox, "GET", "/nothing")[0] == 404
    assert call(sandbox, "GET", "/sms")[0] == 405
    assert call(sandbox, "GET", "/outbox?limit=x")[0] == 400
    assert call(sandbox, "GET", "/health")[2] == '{"status":"ok"}'
    assert "Sandbox outbox" in call(sandbox, "GET", "/", accept="text/html")[2]


def test_mail_from_any_client_arrives_readable(sandbox):
    """Encoded subject, quoted-printable text, reference from the Message-ID."""
    where = urlsplit(sandbox.smtp_url)
    mail = (
        "From: a@example.com\r\nTo: ok@sandbox.example.com\r\nSubject: =?utf-8?q?Ol=C3=A1?=\r\n"
        "Message-ID: <m-1@example.com>\r\nContent-Type: text/plain; charset=utf-8\r\n"
        "Content-Transfer-Encoding: quoted-printable\r\n\r\nS=C3=A3o 5=\r\n0 =E2=82=AC\r\n"
    )
    with smtplib.SMTP(where.hostname, where.port, timeout=10) as client:
        client.sendmail("a@example.com", ["ok@sandbox.example.com"], mail)
    (row,) = sandbox.outbox(channel="EMAIL")
    assert (row["reference"], row["subject"], row["body"]) == ("m-1", "Olá", "São 50 €")
    assert (row["recipient"], row["provider"]) == ("ok@sandbox.example.com", "sandbox-smtp")


def test_mail_scripts_answer_with_their_codes(sandbox):
    """451, 550 and 450 stand for 503, gone and throttled."""
    where = urlsplit(sandbox.smtp_url)
    for who, code in (("fail-503", 451), ("gone", 550), ("throttle-x1", 450)):
        mail = f"Subject: s\r\nX-Arauto-Reference: {who}\r\n\r\nb\r\n"
        with (
            smtplib.SMTP(where.hostname, where.port, timeout=10) as client,
            pytest.raises(smtplib.SMTPDataError) as caught,
        ):
            client.sendmail("a@example.com", [f"{who}@sandbox.example.com"], mail)
        assert caught.value.smtp_code == code
        assert len(sandbox.outbox(reference=who)) == 1
