"""Proving a caller by a JWT, of the one algorithm that the settings name.

The algorithm is never read from the token to choose by, only to refuse; headers that point at keys are ignored. A
token must say who (`sub`), for whom (`tenant`), what (`scope`) and until when (`exp`), and may not outlive the
limit. `role` may say more. Clocks may differ by the leeway for "not yet", never for "no longer".
"""

import time
from collections.abc import Callable
from typing import Any

import jwt

from app.domain.callers import Caller, Proven, Role
from app.services.refusal import Unauthenticated
from app.settings import Settings

FindKey = Callable[[str], Any]
"""Returns the issuer's public key of this id; raises Unauthenticated or Unavailable."""

_NAME_LIMIT = 255
_TOKEN_LIMIT = 8192
_KEY_TRUSTED_SECONDS = 60.0
"""How long a token of the issuer's is taken without asking again whether its key is still in the set."""


class VerifyToken:
    """The use case. `find_key` is needed for the algorithms whose keys are the issuer's."""

    def __init__(
        self, settings: Settings, find_key: FindKey | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._algorithm = settings.jwt_algorithm
        self._secret = settings.jwt_secret.get_secret_value()
        self._find_key = find_key
        self._audience = settings.jwt_audience or None
        self._issuer = settings.jwt_issuer or None
        self._leeway = settings.jwt_leeway_seconds
        self._lifetime = settings.jwt_max_lifetime_seconds
        self._clock = clock

    def __call__(self, token: str) -> Proven:
        """Return who the token stands for; raise Unauthenticated, or Unavailable when its key cannot be had."""
        if len(token) > _TOKEN_LIMIT:
            raise _invalid("The token is too long.")
        try:
            claims = jwt.decode(
                token,
                self._key(token),
                algorithms=[self._algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=self._leeway,
                options={"require": ["exp", "sub"], "verify_aud": self._audience is not None, "verify_exp": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _invalid("The token cannot be accepted.") from error
        return self._proven(claims)

    def _key(self, token: str) -> Any:
        if self._find_key is None:
            return self._secret
        header = jwt.get_unverified_header(token)
        # A token that could not be accepted whatever its key is makes nobody ask the issuer.
        if header.get("alg") != self._algorithm:
            raise jwt.InvalidAlgorithmError
        return self._find_key(header.get("kid", ""))

    def _proven(self, claims: dict[str, Any]) -> Proven:
        now = self._clock()
        expires_at = claims["exp"]
        # Put so that a NaN, which compares with nothing, is refused too.
        if not isinstance(expires_at, int | float) or not expires_at <= now + self._lifetime + self._leeway:
            raise _invalid(f"A token may live {self._lifetime} seconds at most.")
        for name in ("sub", "tenant"):
            value = claims.get(name)
            if not isinstance(value, str) or not 0 < len(value) <= _NAME_LIMIT or not value.isprintable():
                raise _invalid(f"The token's {name} must be text of 1 to {_NAME_LIMIT} characters.")
        if expires_at <= now:
            raise Unauthenticated(
                "AUTH_TOKEN_EXPIRED", "The token is out of date.", claims["tenant"], claims["sub"]
            )
        scope = claims.get("scope", "" if claims.get("role") == Role.ADMIN else None)
        if not isinstance(scope, str):
            raise _invalid("The token's scope must be text, scopes separated by spaces.")
        caller = Caller(claims["sub"], claims["tenant"], frozenset(scope.split()), _role(claims))
        until = float(expires_at)
        relied_until = until if self._find_key is None else min(until, now + _KEY_TRUSTED_SECONDS)
        return Proven(caller, relied_until, expires_at=until)


def _role(claims: dict[str, Any]) -> Role:
    """Return the role that the token names. One that is unknown might be narrower than any, so it is refused."""
    given = claims.get("role", Role.SERVICE)
    if not isinstance(given, str) or given not in set(Role):
        raise _invalid(f"The token's role must be {', '.join(Role)}.")
    return Role(given)


def _invalid(message: str) -> Unauthenticated:
    return Unauthenticated("AUTH_TOKEN_INVALID", message)
