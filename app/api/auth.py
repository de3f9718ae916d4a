"""Who may call what: each view says which scope it needs, or that everybody may call it.

A person's token (role USER) is refused by every view that does not say how it keeps people to what is theirs: the
scope alone would open the whole tenant to them. Each request is counted here, as what its view says that it is.
"""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar, cast

from flask import Flask, request

from app.api.context import services
from app.api.errors import ApiError, trace_id
from app.api.limits import count, count_failure
from app.domain import origins
from app.domain.callers import Caller, Role
from app.domain.origins import Origin
from app.domain.request_kinds import BY_METHOD, RequestKind
from app.services.refusal import Unauthenticated

View = TypeVar("View", bound=Callable[..., Any])

_SCOPE = "required_scope"
_KIND = "request_kind"
_PUBLIC = "public"


def requires(scope: str, *, users: bool = False, kind: RequestKind | None = None) -> Callable[[View], View]:
    """Let a view be called only by who has `scope`; it gets the caller as keyword `caller`.

    With `users` it can be called with a person's token too, and must look at `caller.only_user`. A request counts
    against the limit of `kind`, or of its method when there is none.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(*arguments: Any, **named: Any) -> Any:
            caller = _caller()
            count(caller, kind)
            if not caller.has(scope):
                raise ApiError(HTTPStatus.FORBIDDEN, "AUTH_SCOPE_MISSING", f"The caller lacks the scope {scope}.")
            if caller.role is Role.USER and not users:
                raise ApiError(
                    HTTPStatus.FORBIDDEN, "AUTH_ROLE_NOT_ALLOWED", "This is not open to tokens of the role USER."
                )
            return view(*arguments, caller=caller, **named)

        setattr(guarded, _SCOPE, scope)
        setattr(guarded, _KIND, kind)
        return cast("View", guarded)

    return decorate


def _caller() -> Caller:
    """Return who calls. A failure is counted and goes into the audit log; good credentials never wait for that."""
    found = services()
    address = found.client_address(request.remote_addr, request.headers.get("X-Forwarded-For"))
    origins.enter(Origin(address, trace_id()))
    try:
        return found.sign_in.caller(request.headers.get("Authorization"))
    except Unauthenticated as failure:
        found.sign_in_failures.note(failure)
        count_failure(address)
        raise


def refuse_others(caller: Caller, user_id: str) -> None:
    """Raise ApiError 403 when the caller may act for one user only, and that is another."""
    if caller.only_user is not None and caller.only_user != user_id:
        raise ApiError(
            HTTPStatus.FORBIDDEN, "AUTH_USER_MISMATCH", "A token of the role USER acts for its own subject only."
        )


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


def kinds_of_routes(app: Flask) -> dict[tuple[str, str], RequestKind | None]:
    """Return, by path and method, as what each request is counted that needs a scope; None would be not at all."""
    return {
        (rule.rule, method): getattr(app.view_functions[rule.endpoint], _KIND, None) or BY_METHOD.get(method)
        for rule in app.url_map.iter_rules()
        if hasattr(app.view_functions[rule.endpoint], _SCOPE)
        for method in (rule.methods or set()) - {"OPTIONS"}
    }
