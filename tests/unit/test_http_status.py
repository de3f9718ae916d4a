"""What each answer of a generic HTTP gateway becomes."""

import orjson
import pytest

from providers.http import outcome_of, to_json
from providers.http_status import BY_CODE, BY_STATUS, verdict_of
from providers.outcome import Accepted, Misconfigured, Rejected, Retry, Scope, Throttled, Unknown
from providers.verdict import Meaning


def error(code: str, scope: str = "", message: str = "why") -> bytes:
    return orjson.dumps({"error": {"code": code, "scope": scope, "message": message}})


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (200, Accepted, None),
        (202, Accepted, None),
        (204, Accepted, None),
        (301, Misconfigured, "redirected"),
        (307, Misconfigured, "redirected"),
        (400, Rejected, "invalid_message"),
        (401, Misconfigured, "unauthorized"),
        (403, Misconfigured, "forbidden"),
        (404, Misconfigured, "wrong_address"),
        (409, Unknown, "conflict"),
        (410, Rejected, "recipient_gone"),
        (413, Rejected, "too_large"),
        (418, Rejected, "refused"),
        (429, Throttled, "throttled"),
        (500, Retry, "server_error"),
        (502, Unknown, "bad_gateway"),
        (503, Retry, "unavailable"),
        (504, Unknown, "gateway_timeout"),
        (599, Retry, "server_error"),
        (999, Unknown, "unexpected_answer"),
    ],
)
def test_status_alone_decides_when_the_body_says_nothing(status, kind, code):
    """Each family has a meaning, so no status is left without one."""
    outcome = outcome_of(status, {}, b"not json")
    assert isinstance(outcome, kind)
    assert getattr(outcome, "code", None) == code


def test_every_status_has_a_verdict():
    """Nothing that a server can send raises."""
    assert all(verdict_of(status).code for status in range(1000))


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_error_code_of_the_body_is_more_exact_than_the_status(code):
    """A gateway may use 400 for everything and say in the body what it means."""
    assert verdict_of(400, code) == BY_CODE[code]


def test_success_is_success_whatever_its_body_says():
    """A 2xx is never turned into a failure that would send again."""
    assert isinstance(outcome_of(202, {}, error("recipient_gone")), Accepted)


def test_throttling_carries_its_wait_and_its_scope():
    """Case H01. With a Retry-After it is honoured; the scope says whom to slow."""
    outcome = outcome_of(429, {"Retry-After": "7"}, error("throttled", "recipient"))
    assert outcome == Throttled("throttled", "HTTP 429 why", 7.0, Scope.RECIPIENT)
    assert outcome_of(429, {}, b"") == Throttled("throttled", "HTTP 429", None, Scope.ACCOUNT)


@pytest.mark.parametrize("scope", ["galaxy", 7, None, ["account"], {}])
def test_scope_that_nobody_knows_is_ignored(scope):
    """The verdict's own scope stands."""
    raw = orjson.dumps({"error": {"code": "", "scope": scope}})
    outcome = outcome_of(503, {}, raw)
    assert isinstance(outcome, Retry)
    assert outcome.scope is Scope.PROVIDER


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b'"x"', b"{", b'{"id": null}', b'{"error": "text"}', b"\xff"]
)
def test_body_of_any_shape_is_read_without_raising(raw):
    """A gateway's body is not ours to trust."""
    assert isinstance(outcome_of(202, {}, raw), Accepted)
    assert isinstance(outcome_of(500, {}, raw), Retry)


def test_id_of_the_provider_comes_back_as_text():
    """An id may be a number in JSON."""
    assert outcome_of(202, {}, b'{"id": 12}') == Accepted("12")
    assert outcome_of(202, {}, b'{"message_id": "m"}') == Accepted("m")


def test_only_a_dead_recipient_is_gone():
    """The word that suppresses an address comes from no other status."""
    gone = {status for status, verdict in BY_STATUS.items() if verdict.meaning is Meaning.GONE}
    assert gone == {410}


def test_surrogates_are_repaired_on_the_way_out():
    """Case G15. A text that UTF-8 cannot carry leaves with U+FFFD, nested ones too."""
    sent = to_json({"body": "ok \ud83d", "data": {"k\udc00": "v\udfff"}})
    assert orjson.loads(sent) == {"body": "ok \ufffd", "data": {"k\ufffd": "v\ufffd"}}
