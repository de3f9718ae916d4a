"""Tokens for development and scripts: what `arauto token` prints and the stack's own commands use."""

import time
from collections.abc import Sequence

import jwt

from app.domain.callers import Role
from app.settings import Settings

ALL_SCOPES = (
    "notifications:read",
    "notifications:write",
    "receipts:write",
    "keys:manage",
    "users:read",
    "users:write",
    "preferences:read",
    "preferences:write",
    "suppressions:read",
    "suppressions:write",
    "recipients:read",
    "audit:read",
    "templates:read",
    "templates:write",
)


class NotOurTokensError(ValueError):
    """Tokens of this installation are signed by somebody else's private key."""


def mint(
    settings: Settings,
    tenant: str,
    subject: str,
    scopes: Sequence[str] = ALL_SCOPES,
    expires_in_seconds: int = 86_400,
    *,
    role: Role = Role.SERVICE,
) -> str:
    """Return a token signed with our secret.

    Raises ValueError for a lifetime that the API would refuse, NotOurTokensError when it refuses the secret.
    """
    if not settings.signs_tokens:
        raise NotOurTokensError(f"with JWT_ALGORITHM={settings.jwt_algorithm} only the issuer makes tokens")
    if not 0 < expires_in_seconds <= settings.jwt_max_lifetime_seconds:
        raise ValueError(f"a token lives 1 to {settings.jwt_max_lifetime_seconds} seconds")
    now = int(time.time())
    claims: dict[str, str | int] = {
        "sub": subject,
        "tenant": tenant,
        "role": role,
        "scope": " ".join(scopes),
        "iat": now,
        "exp": now + expires_in_seconds,
    }
    if settings.jwt_audience:
        claims["aud"] = settings.jwt_audience
    if settings.jwt_issuer:
        claims["iss"] = settings.jwt_issuer
    return jwt.encode(claims, settings.jwt_secret.get_secret_value(), algorithm=settings.jwt_algorithm)
