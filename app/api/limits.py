"""How limits look in HTTP: `RateLimit-Policy` and `RateLimit` on what was counted, 429 on what was refused.

The two headers follow draft-ietf-httpapi-ratelimit-headers-11: `"read";q=100;w=60` and `"read";r=99;t=12`,
where t is after how many seconds more requests come back. Without Redis nothing is counted and neither is sent.
"""

import math
from http import HTTPStatus

from flask import Flask, Response, g, request

from app.api.context import services
from app.api.errors import ApiError
from app.domain.callers import Caller
from app.domain.request_kinds import BY_METHOD, RequestKind
from app.services.client_address import counted_as
from app.services.limit_requests import Standing


def count(caller: Caller, kind: RequestKind | None) -> None:
    """Count the request at hand; raise ApiError 429 when its caller has used up this kind."""
    standing = services().limits.request(caller, kind or BY_METHOD.get(request.method, RequestKind.WRITE))
    g.standing = standing
    if standing is not None and standing.is_over:
        raise _too_many(
            standing, "DOMAIN_RATE_LIMITED", "Too many requests of this kind; wait as long as Retry-After says."
        )


def count_failure(address: str | None) -> None:
    """Count a sign-in that failed; raise ApiError 429 when too many did from where it came."""
    standing = services().limits.failed_sign_in(counted_as(address))
    if standing is not None:
        raise _too_many(standing, "AUTH_RATE_LIMITED", "Too many sign-ins from this address failed.")


def register(app: Flask) -> None:
    """Say on each answer where its caller stands."""
    app.after_request(_tell)


def _too_many(standing: Standing, code: str, message: str) -> ApiError:
    headers = {"Retry-After": str(_seconds(standing))}
    return ApiError(HTTPStatus.TOO_MANY_REQUESTS, code, message, headers=headers)


def _tell(response: Response) -> Response:
    standing: Standing | None = g.get("standing")
    if standing is not None:
        name = standing.name
        response.headers["RateLimit-Policy"] = f'"{name}";q={standing.limit};w={standing.window_seconds}'
        response.headers["RateLimit"] = f'"{name}";r={standing.left};t={_seconds(standing)}'
    return response


def _seconds(standing: Standing) -> int:
    return max(1, math.ceil(standing.back_in_seconds))
