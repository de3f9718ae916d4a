"""Tokens of an issuer: whose keys count, what a strange key costs, and what happens while the issuer is away."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from werkzeug.test import TestResponse

from app.wiring import api_services
from tests.integration.api.conftest import PATH, Api, error_of
from tests.integration.api.issuer import Issuer, claims
from tests.waiting import eventually

SOME = f"{PATH}/01a22d60-47d0-79a7-9147-1bc22276754c"


@pytest.fixture
def make_issuer() -> Iterator[Callable[[str], Issuer]]:
    """A factory of issuers; their servers are gone after the test."""
    made: list[Issuer] = []

    def make(algorithm: str) -> Issuer:
        made.append(Issuer(algorithm))
        return made[-1]

    yield make
    for issuer in made:
        issuer.close()


@pytest.fixture
def issuer(make_issuer: Callable[[str], Issuer]) -> Issuer:
    """An issuer of ES256 tokens."""
    return make_issuer("ES256")


@pytest.fixture
def make_trusting(make_api: Callable[..., Api]) -> Callable[..., Api]:
    """A factory of applications that trust one issuer."""

    def make(issuer: Issuer, **chosen: Any) -> Api:
        return make_api(jwt_algorithm=issuer.algorithm, jwt_jwks_url=issuer.url, **chosen)

    return make


def ask(api: Api, token: str) -> TestResponse:
    """Read something that does not exist: 404 when the token was accepted."""
    return api.app.test_client().get(SOME, headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_tokens_of_the_issuers_keys_are_accepted(
    algorithm: str, make_issuer: Callable[[str], Issuer], make_trusting: Callable[..., Api]
) -> None:
    """One fetch serves all keys of the set, and a token is checked like one of ours otherwise."""
    issuer = make_issuer(algorithm)
    issuer.add("second")
    api = make_trusting(issuer, jwt_issuer="https://issuer.example", jwt_audience="arauto")
    good = {"iss": "https://issuer.example", "aud": "arauto"}
    for kid in ("first", "second", "first"):
        assert ask(api, issuer.sign(kid, **good)).status_code == 404
    assert issuer.fetches == 1
    for bad in ({"iss": ...}, {"iss": "https://other.example"}, {"aud": ...}, {"aud": "other"}, {"exp": ...}):
        assert ask(api, issuer.sign(**(good | bad))).status_code == 401, bad
    assert ask(api, issuer.sign(**good, exp=int(time.time()) - 1)).status_code == 401
    assert issuer.fetches == 1


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_no_other_algorithm_is_accepted_whatever_the_token_says(
    algorithm: str, make_issuer: Callable[[str], Issuer], make_trusting: Callable[..., Api]
) -> None:
    """Case J01. A public key is no secret, "none" is no signature, and no header leads to another key.

    Fails when the algorithm or the key is taken from the token.
    """
    issuer = make_issuer(algorithm)
    api = make_trusting(issuer)
    public = issuer.private["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def part(value: bytes) -> bytes:
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    def forged(header: dict[str, Any], key: bytes) -> str:
        text = part(json.dumps(header).encode()) + b"." + part(json.dumps(claims()).encode())
        return (text + b"." + part(hmac.digest(key, text, hashlib.sha256))).decode()

    secret = api.settings.jwt_secret.get_secret_value().encode()
    for header, key in (
        ({"alg": "HS256", "kid": "first"}, public),
        ({"alg": "HS256", "kid": "first"}, secret),
        ({"alg": algorithm, "kid": "first"}, public),
        ({"alg": "none", "kid": "first"}, b""),
        ({"alg": "NONE", "kid": "first"}, b""),
        ({"kid": "first"}, public),
    ):
        assert ask(api, forged(header, key)).status_code == 401, header
    assert ask(api, jwt.encode(claims(), secret, "HS256")).status_code == 401
    other = Issuer("ES256" if algorithm == "RS256" else "RS256")
    try:
        assert ask(api, other.sign()).status_code == 401
        located = {"jku": other.url, "x5u": other.url, "jwk": other.jwk("first")}
        assert ask(api, other.sign(headers=located)).status_code == 401
    finally:
        other.close()
    assert other.fetches == 0
    stranger = (
        rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    )
    assert ask(api, jwt.encode(claims(), stranger, algorithm, {"kid": "first"})).status_code == 401
    assert ask(api, issuer.sign(headers={"jku": other.url})).status_code == 404, "ignored, not followed"


def test_made_up_keys_do_not_flood_the_issuer(issuer: Issuer, make_trusting: Callable[..., Api]) -> None:
    """A hundred strange key ids cost one fetch, and a good token works beside them.

    Fails when each unknown key makes a fetch.
    """
    api = make_trusting(issuer)
    good = issuer.sign()
    for number in range(100):
        response = ask(api, issuer.sign(headers={"kid": f"strange-{number}"}))
        assert response.status_code == 401
        assert error_of(response)["code"] == "AUTH_TOKEN_INVALID"
    assert ask(api, good).status_code == 404
    assert issuer.fetches == 1
    for kid in ("", 7, None, ["first"], "x" * 5000):
        forged = jwt.encode(claims(), issuer.private["first"], "ES256", {"kid": "first"}).split(".")
        head = base64.urlsafe_b64encode(json.dumps({"alg": "ES256", "kid": kid}).encode()).rstrip(b"=").decode()
        assert ask(api, ".".join([head, *forged[1:]])).status_code == 401, kid
    assert issuer.fetches == 1


def test_a_new_key_is_found_after_the_pause(issuer: Issuer, make_trusting: Callable[..., Api]) -> None:
    """The issuer begins to sign with another key: one more fetch, and its tokens work."""
    api = make_trusting(issuer, jwt_jwks_pause_seconds=0.2)
    assert ask(api, issuer.sign()).status_code == 404
    issuer.add("second")
    token = issuer.sign("second")
    eventually(lambda: ask(api, token).status_code == 404)
    assert issuer.fetches == 2


def test_while_the_issuer_is_away_known_keys_work_and_unknown_ones_are_503(
    issuer: Issuer, make_trusting: Callable[..., Api]
) -> None:
    """The set is long out of date, no fetch succeeds, and yet nothing changes for tokens of known keys.

    Fails when a failed fetch drops what is known, or when a token that cannot be checked is called invalid.
    """
    api = make_trusting(issuer, jwt_jwks_fresh_seconds=0.01, jwt_jwks_pause_seconds=5)
    assert ask(api, issuer.sign()).status_code == 404
    keys = api_services(api.settings).sign_in._verify_token._find_key.__self__  # type: ignore[attr-defined]
    for mode in ("fail", "redirect", "flood", "junk"):
        issuer.mode, fetches, keys._next_fetch_at = mode, issuer.fetches, 0.0
        assert ask(api, issuer.sign(jti=mode)).status_code == 404, mode
        eventually(lambda before=fetches: issuer.fetches == before + 1)
        eventually(lambda: keys._flight is None)
        assert keys._has_failed, mode
    issuer.add("second")
    response = ask(api, issuer.sign("second"))
    assert response.status_code == 503
    assert error_of(response)["code"] == "INFRA_ISSUER_UNAVAILABLE"
    assert 1 <= int(response.headers["Retry-After"]) <= 5
    assert ask(api, issuer.sign(jti="after")).status_code == 404
    issuer.mode, keys._next_fetch_at = "answer", 0.0
    assert ask(api, issuer.sign("second")).status_code == 404


def test_an_issuer_that_was_never_there_is_503(make_trusting: Callable[..., Api], issuer: Issuer) -> None:
    """Nothing is known, so nothing can be told of any token; what is wrong by itself is 401 all the same."""
    issuer.close()
    api = make_trusting(issuer)
    response = ask(api, issuer.sign())
    assert response.status_code == 503
    assert error_of(response)["code"] == "INFRA_ISSUER_UNAVAILABLE"
    assert 1 <= int(response.headers["Retry-After"]) <= 10
    for token in ("a.b.c", "x", jwt.encode(claims(), "x" * 32, "HS256")):
        assert ask(api, token).status_code == 401
    assert api.client.get("/live").status_code == 200


@pytest.mark.parametrize("mode", ["hang", "drip"])
def test_an_issuer_that_hangs_holds_up_some_requests_for_a_bounded_time(
    mode: str, issuer: Issuer, make_trusting: Callable[..., Api]
) -> None:
    """Of many callers with unknown keys some wait, for as long as the time-out says, and the rest not at all.

    Fails without the places, when all threads of a server wait, and with a time-out per read, which a server that
    says one letter at a time never meets.
    """
    issuer.mode = mode
    api = make_trusting(issuer, jwt_jwks_timeout_seconds=3.0, api_threads=4)
    keys = api_services(api.settings).sign_in._verify_token._find_key.__self__  # type: ignore[attr-defined]
    began = time.monotonic()
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(ask, api, issuer.sign(jti=str(number))) for number in range(2)]
        eventually(lambda: keys._places._value == 0)
        refused = threads.submit(ask, api, issuer.sign(jti="third")).result(20)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert not any(each.done() for each in waiting), "the third waited as long as they"
        assert {each.result(20).status_code for each in waiting} == {503}
    assert time.monotonic() - began < 15
    assert issuer.fetches == 1
    eventually(lambda: keys._flight is None)


def test_a_key_that_the_issuer_takes_back_ends_its_tokens(
    issuer: Issuer, make_trusting: Callable[..., Api]
) -> None:
    """A remembered token is looked at again after a minute, and its key is gone by then.

    Fails when a token is remembered until its own end.
    """
    api = make_trusting(issuer, jwt_jwks_fresh_seconds=0.01, jwt_jwks_pause_seconds=0.01)
    issuer.add("second")
    token = issuer.sign(exp=int(time.time()) + 3600)
    assert ask(api, token).status_code == 404
    del issuer.private["first"]
    sign_in = api_services(api.settings).sign_in
    ahead = [0.0]
    sign_in._clock = lambda: time.time() + ahead[0]
    assert ask(api, token).status_code == 404, "remembered"
    ahead[0] = 61
    eventually(lambda: ask(api, token).status_code == 401)
    assert ask(api, issuer.sign("second")).status_code == 404
