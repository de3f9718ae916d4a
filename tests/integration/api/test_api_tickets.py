"""`/v1/inbox/tickets`, and the stream that a ticket opens."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy.engine import Row

from app.domain.callers import Role
from app.services.cursors import Cursors
from app.services.refusal import Unauthenticated
from app.services.stream_tickets import StreamTickets
from app.wiring import api_services
from embedded.ports import free_port
from tests.integration.api.conftest import Api, error_of
from tests.stream_client import Follower, publish, streaming
from tests.waiting import eventually

TICKETS = "/v1/inbox/tickets"
Rows = Callable[..., list[Row[Any]]]


@pytest.fixture
def api(make_api: Callable[..., Api], redis_url: str) -> Api:
    """An API, and a stream process that its settings name."""
    return make_api(redis_url=redis_url, stream_port=free_port(), stream_check_seconds=0.5, log_level="ERROR")


@pytest.fixture
def port(api: Api) -> Iterator[int]:
    """Where streams are served."""
    with ExitStack() as stack:
        stack.enter_context(streaming(api.settings))
        yield api.settings.stream_port


def person(api: Api, subject: str = "u1", scope: str = "notifications:read") -> dict[str, str]:
    return api.bearer(scope=scope, role=Role.USER, subject=subject)


def test_a_ticket_opens_the_inbox_of_the_person_who_got_it(api: Api, port: int, redis_url: str) -> None:
    """Without any header, as a browser's EventSource connects. The answer is for nobody's cache."""
    made = api.client.post(TICKETS, headers=person(api))
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    assert made.get_json()["expires_in"] == 60
    with Follower(port, ticket=made.get_json()["ticket"]) as one:
        one.until("sync")
        publish(redis_url, "u2", "theirs")
        publish(redis_url, "u1", "mine")
        one.until("created")
        assert [identifier for _, identifier, _ in one.events if identifier] == ["mine"]


def test_a_service_gets_tickets_for_the_user_that_it_names(api: Api, port: int, redis_url: str) -> None:
    """A number is text inside, as everywhere."""
    made = api.client.post(TICKETS, json={"user_id": 42}, headers=api.bearer())
    with Follower(port, ticket=made.get_json()["ticket"]) as one:
        one.until("sync")
        publish(redis_url, "42", "n1")
        one.until("created")


@pytest.mark.parametrize(
    ("body", "role", "scope", "status", "code"),
    [
        (None, Role.SERVICE, "notifications:read", 422, "DOMAIN_USER_NOT_NAMED"),
        ({"user_id": None}, Role.ADMIN, "", 422, "DOMAIN_USER_NOT_NAMED"),
        ({"user_id": "u2"}, Role.USER, "notifications:read", 403, "AUTH_USER_MISMATCH"),
        ({}, Role.USER, "notifications:write", 403, "AUTH_SCOPE_MISSING"),
        ({"user_id": ""}, Role.SERVICE, "notifications:read", 400, "VALIDATION_BODY"),
        ({"user_id": "x" * 256}, Role.SERVICE, "notifications:read", 400, "VALIDATION_BODY"),
        ({"user_id": "a\0"}, Role.SERVICE, "notifications:read", 400, "VALIDATION_TEXT"),
        ({"user_id": True}, Role.SERVICE, "notifications:read", 400, "VALIDATION_BODY"),
        ({"user": "u1"}, Role.USER, "notifications:read", 400, "VALIDATION_BODY"),
        ([], Role.USER, "notifications:read", 400, "VALIDATION_BODY"),
    ],
)
def test_a_ticket_is_made_only_for_an_inbox_that_the_caller_may_read(
    api: Api, body: Any, role: Role, scope: str, status: int, code: str
) -> None:
    """Fails when a person can name another, or a service nobody."""
    named = {} if body is None else {"json": body}
    refused = api.client.post(TICKETS, headers=api.bearer(scope=scope, role=role, subject="u1"), **named)
    assert (refused.status_code, error_of(refused)["code"]) == (status, code)


def test_a_ticket_is_no_token_and_a_cursor_is_no_ticket(api: Api, port: int) -> None:
    """One secret signs all of them, with a key for each purpose."""
    ticket = api.client.post(TICKETS, headers=person(api)).get_json()["ticket"]
    refused = api.client.get("/v1/notifications/x", headers={"Authorization": f"Bearer {ticket}"})
    assert (refused.status_code, error_of(refused)["code"]) == (401, "AUTH_TOKEN_INVALID")
    cursor = Cursors(api.settings.jwt_secret.get_secret_value()).make("x", "y")
    for forged in (cursor, ticket[:-1], ticket + "A", ticket[:20] + "A" + ticket[21:], ticket + "!"):
        with Follower(port, ticket=forged) as stream:
            assert (stream.answer.status, stream.error["code"]) == (401, "AUTH_TICKET_INVALID"), forged


def test_a_ticket_is_good_for_a_minute(api: Api) -> None:
    """By the clock of the process that reads it."""
    proven = api_services(api.settings).sign_in.proven(person(api)["Authorization"])
    now = time.time()
    early = StreamTickets("s" * 32, lambda: now)
    ticket = early.make(proven, "u1")
    assert StreamTickets("s" * 32, lambda: now + 59).read(ticket).user_id == "u1"
    with pytest.raises(Unauthenticated, match="out of date"):
        StreamTickets("s" * 32, lambda: now + 60).read(ticket)
    with pytest.raises(Unauthenticated, match="not one of ours"):
        StreamTickets("t" * 32, lambda: now).read(ticket)


def test_a_stream_by_ticket_ends_with_the_token_behind_it(api: Api, port: int) -> None:
    """Fails when a ticket outlives what it was made with."""
    from app.services.tokens import mint

    token = mint(api.settings, "demo", "u1", ["notifications:read"], 3, role=Role.USER)
    made = api.client.post(TICKETS, headers={"Authorization": f"Bearer {token}"})
    with Follower(port, ticket=made.get_json()["ticket"]) as one:
        one.until("sync")
        eventually(lambda: one.is_over, seconds=6)
        assert one.comments[-1] == "ended: expired"


def test_a_stream_by_ticket_ends_when_the_key_behind_it_is_revoked(api: Api, port: int, rows: Rows) -> None:
    """The ticket names the key by its prefix. Fails when only streams with a header are looked at again."""
    made = api.client.post(
        "/v1/api-keys",
        json={"name": "shop", "scopes": ["notifications:read"]},
        headers=api.bearer(scope="keys:manage notifications:read"),
    )
    headers = {"Authorization": f"Bearer {made.get_json()['key']}"}
    ticket = api.client.post(TICKETS, json={"user_id": "u1"}, headers=headers).get_json()["ticket"]
    assert made.get_json()["key"].rpartition("_")[2][:16] not in ticket
    with Follower(port, ticket=ticket) as one:
        one.until("sync")
        rows("UPDATE api_key SET revoked_at = now()")
        eventually(lambda: one.is_over, seconds=6)
    with Follower(port, ticket=ticket) as again:
        assert (again.answer.status, again.error["code"]) == (401, "AUTH_KEY_REVOKED")
