"""Tokens for development and scripts: what `arauto token` prints and the stack's own commands use."""

import time
from collections.abc import Sequence

import jwt

from app.settings import Settings

ALGORITHM = "HS256"
ALL_SCOPES = ("notifications:read", "notifications:write", "receipts:write")


def mint(
    settings: Settings,
    tenant: str,
    subject: str,
    scopes: Sequence[str] = ALL_SCOPES,
    expires_in_seconds: int = 86_400,
) -> str:
    """Return a signed token; raise ValueError for a lifetime that the API would refuse."""
    if not 0 < expires_in_seconds <= settings.jwt_max_lifetime_seconds:
        raise ValueError(f"a token lives 1 to {settings.jwt_max_lifetime_seconds} seconds")
    now = int(time.time())
    claims: dict[str, str | int] = {
        "sub": subject,
        "tenant": tenant,
        "scope": " ".join(scopes),
        "iat": now,
        "exp": now + expires_in_seconds,
    }
    if settings.jwt_audience:
        claims["aud"] = settings.jwt_audience
    return jwt.encode(claims, settings.jwt_secret.get_secret_value(), algorithm=ALGORITHM)
