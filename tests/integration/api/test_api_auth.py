"""Who may call: tokens that are refused, tokens that are accepted, and that every route says what it needs."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt

from app.api.auth import routes_without_scope
from app.services.tokens import ALL_SCOPES, mint
from app.wiring import api_services
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.integration.api.issuer import claims

SOME = f"{PATH}/01a22d60-47d0-79a7-9147-1bc22276754c"


def signed(api: Api, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **chosen: Any) -> str:
    secret = api.settings.jwt_secret.get_secret_value()
    return jwt.encode(claims(**chosen), secret if algorithm != "none" else None, algorithm, headers)


def status(api: Api, authorization: str | None) -> int:
    """The status of a read with this header: 404 when the token was accepted."""
    headers = {} if authorization is None else {"Authorization": authorization}
    response = api.client.get(SOME, headers=headers)
    if response.status_code == 401:
        assert error_of(response)["code"].startswith("AUTH_TOKEN_")
        assert response.headers["WWW-Authenticate"] == "Bearer"
    return response.status_code


def test_only_our_secret_and_our_algorithm_are_accepted(make_api: Callable[..., Api]) -> None:
    """Case J01. Fails when the algorithm is taken from the token, or a key from its headers."""
    public_key = b"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n"
    api = make_api(jwt_secret="x" * 64)
    assert status(api, f"Bearer {signed(api)}") == 404

    # PyJWT refuses to sign with such a key, so the token is put together by hand as an attacker would.
    def part(value: bytes) -> bytes:
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    def forged(header: dict[str, Any], key: bytes) -> str:
        text = part(json.dumps(header).encode()) + b"." + part(json.dumps(claims()).encode())
        return (text + b"." + part(hmac.digest(key, text, hashlib.sha256))).decode()

    for header, key in (
        ({"alg": "HS256"}, public_key),
        ({"alg": "RS256"}, b"x" * 64),
        ({"alg": "none"}, b""),
        ({"alg": "HS256", "kid": "../../dev/null"}, b""),
        ({"alg": "HS256", "jku": "https://evil.example/keys"}, b"evil"),
        ({"alg": "HS256", "x5u": "https://evil.example/cert"}, b"evil"),
    ):
        assert status(api, f"Bearer {forged(header, key)}") == 401, header
    for algorithm in ("HS384", "HS512", "none"):
        assert status(api, f"Bearer {signed(api, algorithm)}") == 401, algorithm
    # A key location in an otherwise good token is ignored, not followed.
    assert status(api, f"Bearer {signed(api, headers={'kid': '../../dev/null'})}") == 404


def test_a_token_has_an_end_that_is_near(api: Api) -> None:
    """Case J03. `exp` is required, a number, not past (no leeway), and within the longest lifetime."""
    now = int(time.time())
    for end in (..., 10**30, 1e308, "soon", None, [], now - 1, now - 3600, 0, -1, now + 91 * 86_400, True):
        assert status(api, f"Bearer {signed(api, exp=end)}") == 401, end
    assert status(api, f"Bearer {signed(api, nbf=now + 60)}") == 401
    assert status(api, f"Bearer {signed(api, nbf=now + 10)}") == 404, "a clock may be half a minute ahead"
    assert status(api, f"Bearer {signed(api, exp=now + 89 * 86_400)}") == 404


def test_a_remembered_token_ends_too(api: Api) -> None:
    """The second look at a token is a look at its end, not at nothing."""
    now = time.time()
    sign_in = api_services(api.settings).sign_in
    token = f"Bearer {signed(api, exp=int(now) + 30)}"
    assert status(api, token) == 404
    sign_in._clock = sign_in._verify_token._clock = lambda: now + 31  # type: ignore[attr-defined]
    assert status(api, token) == 401


def test_claims_are_text_of_sane_length(api: Api) -> None:
    """Subject, tenant and scope; a tenant with a NUL would reach the database."""
    for name in ("sub", "tenant"):
        for value in (..., "", 7, None, ["demo"], {"a": 1}, "x" * 256, "a\0b", "a\nb"):
            assert status(api, f"Bearer {signed(api, **{name: value})}") == 401, (name, value)
    for value in (..., 7, None, ["notifications:read"]):
        assert status(api, f"Bearer {signed(api, scope=value)}") == 401, value
    for value in ("", "user", "ROOT", "USER ADMIN", None, 7, ["USER"], {"USER": 1}, True):
        assert status(api, f"Bearer {signed(api, role=value)}") == 401, value


def test_headers_that_carry_no_token_are_refused(api: Api) -> None:
    """Whatever is in the header, the answer is 401 in the one shape."""
    good = signed(api)
    for header in (
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        good,
        f"Bearer {good}x",
        f"Bearer  {good}",
        "Bearer a.b.c",
        "Bearer ....",
        "Bearer " + "x" * 10_000,
        "Bearer é",
    ):
        assert status(api, header) == 401, header
    assert status(api, f"bearer {good}") == 404


def test_the_audience_is_checked_when_it_is_configured(make_api: Callable[..., Api]) -> None:
    """Without a configured audience any is ignored."""
    api = make_api(jwt_audience="arauto")
    assert status(api, f"Bearer {signed(api)}") == 401
    assert status(api, f"Bearer {signed(api, aud='other')}") == 401
    assert status(api, f"Bearer {signed(api, aud='arauto')}") == 404
    assert status(api, f"Bearer {mint(api.settings, 'demo', 's')}") == 404


def test_a_scope_that_is_missing_is_403(api: Api) -> None:
    """Reading does not allow writing, nor the other way round."""
    for scope, method, path in (
        ("notifications:read", "POST", PATH),
        ("notifications:read", "POST", f"{SOME}/cancel"),
        ("notifications:write", "GET", SOME),
        ("", "GET", SOME),
        ("notifications:readx notifications", "GET", SOME),
    ):
        response = api.client.open(path, method=method, json=sms(), headers=api.bearer(scope=scope))
        assert response.status_code == 403, (scope, path)
        assert error_of(response)["code"] == "AUTH_SCOPE_MISSING"


def test_every_route_declares_its_scope_or_that_it_is_public(api: Api) -> None:
    """Fails when a view has neither `requires` nor `public`."""
    assert routes_without_scope(api.app) == []

    @api.app.get("/forgotten")
    def forgotten() -> str:
        return ""

    assert routes_without_scope(api.app) == ["/forgotten"]


def test_the_command_lines_scopes_are_the_routes_scopes(api: Api) -> None:
    """A token with all scopes may call everything."""
    needed = {getattr(view, "required_scope", None) for view in api.app.view_functions.values()} - {None}
    assert needed <= set(ALL_SCOPES)
