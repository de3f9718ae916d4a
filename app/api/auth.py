"""Who calls, and what they may do: a bearer JWT, signed HS256 with our secret and nothing else.

The algorithm is pinned here and never read from the token; headers that point at keys are ignored. A token
must say who (`sub`), for whom (`tenant`), what (`scope`) and until when (`exp`), and may not outlive the limit.
Clocks may differ by the leeway for "not yet", never for "no longer".
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar, cast

import jwt
from flask import Flask, current_app, request

from app.api.errors import ApiError
from app.services.tokens import ALGORITHM
from app.settings import Settings

View = TypeVar("View", bound=Callable[..., Any])

_NAME_LIMIT = 255
_TOKEN_LIMIT = 8192
_REMEMBERED = 1024
_SCOPE = "required_scope"
_PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class Caller:
    """A verified token. `expires_at` is in seconds since the epoch."""

    subject: str
    tenant_id: str
    scopes: frozenset[str]
    expires_at: float


class Authenticator:
    """Verifies tokens. A verified one is remembered until it is out of date: checking a signature takes 30 µs."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._secret = settings.jwt_secret.get_secret_value()
        self._audience = settings.jwt_audience or None
        self._leeway = settings.jwt_leeway_seconds
        self._lifetime = settings.jwt_max_lifetime_seconds
        self._clock = clock
        self._known: dict[str, Caller] = {}

    def caller(self, header: str | None) -> Caller:
        """Return who sent the `Authorization` header; raise ApiError 401."""
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise _refuse("AUTH_TOKEN_MISSING", "Send a bearer token in the Authorization header.")
        known = self._known.get(token)
        if known is None:
            known = self._verify(token)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[token] = known
        elif known.expires_at <= self._clock():
            raise _refuse("AUTH_TOKEN_EXPIRED", "The token is out of date.")
        return known

    def _verify(self, token: str) -> Caller:
        if len(token) > _TOKEN_LIMIT:
            raise _refuse("AUTH_TOKEN_INVALID", "The token is too long.")
        try:
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=[ALGORITHM],
                audience=self._audience,
                leeway=self._leeway,
                options={"require": ["exp", "sub"], "verify_aud": self._audience is not None},
            )
        except jwt.ExpiredSignatureError as error:
            raise _refuse("AUTH_TOKEN_EXPIRED", "The token is out of date.") from error
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _refuse("AUTH_TOKEN_INVALID", "The token cannot be accepted.") from error
        return self._checked(claims)

    def _checked(self, claims: dict[str, Any]) -> Caller:
        now = self._clock()
        expires_at = claims["exp"]
        if not isinstance(expires_at, int | float) or expires_at > now + self._lifetime + self._leeway:
            raise _refuse("AUTH_TOKEN_INVALID", f"A token may live {self._lifetime} seconds at most.")
        if expires_at <= now:
            raise _refuse("AUTH_TOKEN_EXPIRED", "The token is out of date.")
        for name in ("sub", "tenant"):
            value = claims.get(name)
            if not isinstance(value, str) or not 0 < len(value) <= _NAME_LIMIT or not value.isprintable():
                raise _refuse(
                    "AUTH_TOKEN_INVALID", f"The token's {name} must be text of 1 to {_NAME_LIMIT} characters."
                )
        scope = claims.get("scope")
        if not isinstance(scope, str):
            raise _refuse("AUTH_TOKEN_INVALID", "The token's scope must be text, scopes separated by spaces.")
        return Caller(claims["sub"], claims["tenant"], frozenset(scope.split()), float(expires_at))


def _refuse(code: str, message: str) -> ApiError:
    return ApiError(HTTPStatus.UNAUTHORIZED, code, message, headers={"WWW-Authenticate": "Bearer"})


def requires(scope: str) -> Callable[[View], View]:
    """Let a view be called only with a token of `scope`; it gets the caller as keyword `caller`."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(*arguments: Any, **named: Any) -> Any:
            authenticator: Authenticator = current_app.extensions["arauto_auth"]
            caller = authenticator.caller(request.headers.get("Authorization"))
            if scope not in caller.scopes:
                raise ApiError(HTTPStatus.FORBIDDEN, "AUTH_SCOPE_MISSING", f"The token lacks the scope {scope}.")
            return view(*arguments, caller=caller, **named)

        setattr(guarded, _SCOPE, scope)
        return cast("View", guarded)

    return decorate


def public(view: View) -> View:
    """Say of a view that everybody may call it."""
    setattr(view, _PUBLIC, True)
    return view


def routes_without_scope(app: Flask) -> list[str]:
    """Return the routes that neither require a scope nor are declared public; there should be none."""
    return sorted(
        rule.rule
        for rule in app.url_map.iter_rules()
        if not hasattr(app.view_functions[rule.endpoint], _SCOPE)
        and not getattr(app.view_functions[rule.endpoint], _PUBLIC, False)
    )
