"""Live inboxes over real sockets, from a message in Valkey to the frame that a client reads."""

import http.client
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy.engine import Engine

from app.db import api_keys
from app.domain.callers import Role
from app.services.tokens import mint
from app.settings import Settings
from app.streams.server import PATH
from embedded.ports import free_port
from embedded.processes import Child, Launch, tail
from embedded.valkey import Valkey
from tests.stream_client import Follower, publish, streaming
from tests.waiting import eventually, never


@dataclass
class Served:
    """A stream process beside the test."""

    settings: Settings
    stop: Callable[[], None]

    @property
    def port(self) -> int:
        return self.settings.stream_port

    def bearer(self, subject: str = "u1", role: Role = Role.USER, **named: Any) -> dict[str, str]:
        tenant = named.pop("tenant", "demo")
        scopes = named.pop("scopes", ["notifications:read"])
        return {"Authorization": f"Bearer {mint(self.settings, tenant, subject, scopes, role=role, **named)}"}

    def follow(self, user: str = "u1", **named: Any) -> Follower:
        return Follower(self.port, self.bearer(user, **named))

    def publish(self, user: str, identifier: str | None, **named: Any) -> int:
        return publish(self.settings.cache_redis_url, user, identifier, **named)


@pytest.fixture
def serve(make_settings: Callable[..., Settings]) -> Iterator[Callable[..., Served]]:
    """A factory of stream processes with settings of their own."""
    with ExitStack() as stack:

        def make(**chosen: Any) -> Served:
            usual = {"stream_port": free_port(), "kafka_bootstrap_servers": "127.0.0.1:1", "log_level": "WARNING"}
            settings = make_settings(**usual | chosen)
            return Served(settings, stack.enter_context(streaming(settings)))

        yield make


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """One with settings as they come."""
    return serve()


def get(port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    raw = answer.read()
    connection.close()
    return answer.status, answer.headers, json.loads(raw) if raw else None


def test_a_client_hears_what_is_published_for_its_user(served: Served) -> None:
    """First a sync, then each message, with the headers that keep proxies from holding it back."""
    with served.follow() as one:
        one.until("sync")
        assert served.publish("u1", "n1") == 1
        served.publish("u1", None, event="read_all")
        one.until("read_all")
        assert one.events[1:] == [
            ("created", "n1", {"event": "created", "id": "n1", "at": "2026-11-30T12:00:00Z"}),
            ("read_all", None, {"event": "read_all", "id": None, "at": "2026-11-30T12:00:00Z"}),
        ]
        assert one.retries == [3000]
        headers = one.answer.headers
        assert headers["Content-Type"] == "text/event-stream"
        assert "no-transform" in headers["Cache-Control"]
        assert headers["X-Accel-Buffering"] == "no"


def test_a_sync_waits_for_the_subscription(served: Served, redis_client: "redis.Redis") -> None:
    """A client that fetches its inbox before it is subscribed can miss what comes in between.

    Fails when the sync is sent before Redis has confirmed the subscription.
    """
    with served.follow("somebody") as other:
        other.until("sync")
    redis_client.client_pause(1000)
    with served.follow() as one:
        never(lambda: one.events, seconds=0.4)
        one.until("sync")


def test_what_is_published_after_a_sync_is_heard(served: Served) -> None:
    """At once, every time."""
    for number in range(30):
        with served.follow(f"user-{number}") as one:
            one.until("sync")
            assert served.publish(f"user-{number}", "n") == 1
            one.until("created")


def test_users_and_tenants_are_never_mixed(served: Served) -> None:
    """Twenty users of two tenants with the same ids each hear their own, and all of it."""
    whom = [(tenant, f"u{number}") for tenant in ("demo", "other") for number in range(10)]
    with ExitStack() as stack:
        clients = {who: stack.enter_context(served.follow(who[1], tenant=who[0])).until("sync") for who in whom}
        for round_number in range(5):
            for tenant, user in whom:
                served.publish(user, f"{tenant}-{user}-{round_number}", tenant=tenant)
        for (tenant, user), client in clients.items():
            client.until("created", 5)
            heard = [identifier for _, identifier, _ in client.events if identifier]
            assert heard == [f"{tenant}-{user}-{number}" for number in range(5)]


def test_a_silent_stream_sends_heartbeats(serve: Callable[..., Served]) -> None:
    """A comment, which no client takes for an event."""
    with serve(stream_heartbeat_seconds=0.2).follow() as one:
        eventually(lambda: one.comments.count("") >= 3)
        assert one.names == ["sync"]


def test_one_subscription_serves_all_streams_of_a_user_and_ends_with_the_last(
    served: Served, redis_client: "redis.Redis"
) -> None:
    """Fails when a stream that ends takes the subscription of another one with it, or the last one leaves it."""

    def subscribed() -> int:
        return len(redis_client.pubsub_channels("inbox:*"))

    with served.follow() as first:
        first.until("sync")
        with served.follow() as second:
            second.until("sync")
            assert subscribed() == 1
            assert served.publish("u1", "n1") == 1
            first.until("created")
            second.until("created")
        eventually(lambda: served.publish("u1", "n2") == 1)
        first.until("created", 2)
        assert subscribed() == 1
    eventually(lambda: subscribed() == 0)


def test_who_comes_back_at_once_is_subscribed_again(served: Served) -> None:
    """Leaving and coming back cross on their way to Redis; the last word holds."""
    for number in range(20):
        with served.follow() as one:
            one.until("sync")
            assert served.publish("u1", str(number)) == 1
            one.until("created")


@pytest.mark.parametrize(
    ("headers", "path", "status", "code"),
    [
        ({}, PATH, 401, "AUTH_TOKEN_MISSING"),
        ({"Authorization": "Bearer nonsense"}, PATH, 401, "AUTH_TOKEN_INVALID"),
        ({"Authorization": "Bearer ak_nonsense"}, PATH, 401, "AUTH_KEY_INVALID"),
        ({}, f"{PATH}?ticket=nonsense", 401, "AUTH_TICKET_INVALID"),
        ({}, f"{PATH}?ticket=%00%ff", 401, "AUTH_TICKET_INVALID"),
        ({}, f"{PATH}?ticket=", 401, "AUTH_TICKET_INVALID"),
        ({}, f"{PATH}?ticket=x&user_id=u1", 400, "VALIDATION_QUERY"),
        ({}, f"{PATH}?token=x", 400, "VALIDATION_QUERY"),
        ({}, f"{PATH}?user_id=a&user_id=b", 400, "VALIDATION_QUERY"),
        ({}, f"{PATH}?user_id=", 400, "VALIDATION_QUERY"),
        ({}, f"{PATH}?user_id={'x' * 256}", 400, "VALIDATION_QUERY"),
        ({}, f"{PATH}?user_id=a%00b", 400, "VALIDATION_QUERY"),
        ({}, "/v1/inbox", 404, "VALIDATION_ROUTE_UNKNOWN"),
    ],
)
def test_what_opens_nothing_is_refused_in_the_one_shape(
    served: Served, headers: dict[str, str], path: str, status: int, code: str
) -> None:
    """Errors are those of the API, and no input is a 5xx."""
    found, answered, body = get(served.port, path, headers)
    assert (found, body["error"]["code"]) == (status, code)
    assert set(body["error"]) == {"code", "message", "details", "timestamp", "trace_id"}
    assert answered["Content-Type"].startswith("application/json")
    assert (answered.get("WWW-Authenticate") == "Bearer") == (status == 401)


def test_other_methods_are_refused(served: Served) -> None:
    """With `Allow`, and without opening anything."""
    status, headers, body = get(served.port, PATH, served.bearer(), "POST")
    assert (status, headers["Allow"], body["error"]["code"]) == (405, "GET", "VALIDATION_METHOD_NOT_ALLOWED")


def test_a_person_follows_only_themselves(served: Served) -> None:
    """403 for another's inbox; one's own may be named."""
    with Follower(served.port, served.bearer("u1"), user_id="u2") as refused:
        assert (refused.answer.status, refused.error["code"]) == (403, "AUTH_USER_MISMATCH")
    with Follower(served.port, served.bearer("u1"), user_id="u1") as own:
        own.until("sync")


def test_a_service_names_the_user_and_needs_the_scope(served: Served) -> None:
    """422 without a name, 403 without the scope; ADMIN has every scope."""
    service = served.bearer("shop", Role.SERVICE)
    with Follower(served.port, service) as unnamed:
        assert (unnamed.answer.status, unnamed.error["code"]) == (422, "DOMAIN_USER_NOT_NAMED")
    writer = served.bearer("shop", Role.SERVICE, scopes=["notifications:write"])
    with Follower(served.port, writer, user_id="u1") as barred:
        assert (barred.answer.status, barred.error["code"]) == (403, "AUTH_SCOPE_MISSING")
    admin = served.bearer("boss", Role.ADMIN, scopes=[])
    with Follower(served.port, service, user_id="u7") as one, Follower(served.port, admin, user_id="u7") as two:
        one.until("sync")
        two.until("sync")
        served.publish("u7", "n1")
        one.until("created")
        two.until("created")


def test_a_stream_ends_with_its_token(served: Served) -> None:
    """To the second. The client comes back and is told 401. Fails when a token is looked at once only."""
    headers = served.bearer(expires_in_seconds=2)
    with Follower(served.port, headers) as one:
        one.until("sync")
        eventually(lambda: one.is_over, seconds=6)
        assert one.comments[-1] == "ended: expired"
    with Follower(served.port, headers) as again:
        assert (again.answer.status, again.error["code"]) == (401, "AUTH_TOKEN_EXPIRED")


@pytest.fixture
def key(engine: Engine) -> tuple[str, Callable[[], None]]:
    """An API key of tenant demo, and what revokes it."""
    from app.domain.api_keys import digest
    from app.domain.api_keys import mint as mint_key

    made = mint_key()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO api_key (id, tenant_id, prefix, digest, name, scopes, created_by)"
            " VALUES (gen_random_uuid(), 'demo', %(prefix)s, %(digest)s, 'n', '{notifications:read}', 't')",
            {"prefix": made.prefix, "digest": digest(made.text)},
        )

    def revoke() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE api_key SET revoked_at = now()")

    return made.text, revoke


def test_streams_of_a_revoked_key_end(
    serve: Callable[..., Served], key: tuple[str, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All streams of a key share each look at it, and end when it was revoked.

    Fails when a key is proven only at the start of a stream.
    """
    text, revoke = key
    looks: list[str] = []
    look_up = api_keys.look_up

    def counted(cursor: Any, prefix: str) -> Any:
        looks.append(prefix)
        return look_up(cursor, prefix)

    monkeypatch.setattr(api_keys, "look_up", counted)
    served = serve(stream_check_seconds=0.5, api_key_trusted_seconds=0.1)
    headers = {"Authorization": f"Bearer {text}"}
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Follower(served.port, headers, user_id=f"u{number}")).until("sync")
            for number in range(6)
        ]
        before = len(looks)
        began = time.monotonic()
        eventually(lambda: len(looks) >= before + 2)
        assert len(looks) - before <= 2 + 2 * (time.monotonic() - began)
        assert not any(client.is_over for client in clients)
        revoke()
        eventually(lambda: all(client.is_over for client in clients), seconds=5)
    with Follower(served.port, headers, user_id="u1") as again:
        assert (again.answer.status, again.error["code"]) == (401, "AUTH_KEY_REVOKED")


def test_redis_lost_and_back_is_a_sync_for_everybody(
    make_settings: Callable[..., Settings], database_url: str, tmp_path: Path
) -> None:
    """Streams stay open through a restart; then each client fetches its inbox, and hears what comes.

    Fails when the subscriptions are not made again, and when they are and nobody is told.
    """
    server = Valkey(tmp_path / "valkey", free_port(), log=tmp_path / "valkey.log")
    server.start()
    try:
        settings = make_settings(
            redis_url=server.url, stream_port=free_port(), kafka_bootstrap_servers="127.0.0.1:1", log_level="ERROR"
        )
        with streaming(settings) as stop, ExitStack() as stack:
            served = Served(settings, stop)
            users = [f"u{number}" for number in range(5)]
            clients = [stack.enter_context(served.follow(user)).until("sync") for user in users]
            assert get(served.port, "/ready")[0] == 200
            server.stop()
            eventually(lambda: get(served.port, "/ready")[0] == 503)
            assert get(served.port, "/live")[0] == 200
            with served.follow("late") as late:
                late.until("sync", seconds=5)
                assert not any(client.is_over for client in clients)
                server.start()
                for client in (*clients, late):
                    client.until("sync", 2, seconds=20)
                for user, client in zip(users, clients, strict=True):
                    assert served.publish(user, f"for-{user}") == 1
                    client.until("created")
                    assert client.events[-1][1] == f"for-{user}"
            assert get(served.port, "/ready")[0] == 200
    finally:
        server.stop()


def test_a_client_that_does_not_read_gets_one_sync_and_costs_a_bounded_buffer(
    serve: Callable[..., Served], redis_client: "redis.Redis"
) -> None:
    """Others of the same user hear everything meanwhile, and the slow one is told to fetch.

    Fails when a slow client holds up the others, and when what it missed is dropped without a word.
    """
    served = serve(stream_buffer=50)
    with served.follow() as quick, socket.create_connection(("127.0.0.1", served.port), 10) as line:
        quick.until("sync")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {served.bearer()['Authorization']}\r\n\r\n"
        line.sendall(head.encode())
        begun = b""
        while b"event: sync" not in begun:
            begun += line.recv(300)
        assert b" 200 " in begun
        total = 6_000
        for begin in range(0, total, 500):
            with redis_client.pipeline(transaction=False) as pipe:
                for number in range(begin, begin + 500):
                    pipe.publish(
                        _channel("u1"),
                        json.dumps({"event": "created", "id": f"n{number}" + "x" * 40, "at": "now"}),
                    )
                pipe.execute()
            eventually(lambda: len(quick.events) > begin + 400 or "sync" in quick.names[1:], seconds=20)  # noqa: B023
        eventually(lambda: len(quick.events) > total or "sync" in quick.names[1:], seconds=20)
        line.settimeout(20)
        seen = line.recv(65_536)
        while b"event: sync" not in seen:
            seen += line.recv(65_536)
        # It reads again and has been told; only from here on is an event sure to come through to it.
        served.publish("u1", "the-last")
        while b"the-last" not in seen[-20_000:]:
            seen += line.recv(65_536)
        assert seen.count(b"event: created") < total / 2


def _channel(user: str) -> str:
    from app.domain.inbox_channel import inbox_channel

    return inbox_channel("demo", user)


def test_a_client_that_takes_nothing_for_long_is_cut_off(serve: Callable[..., Served]) -> None:
    """Its place is free again, also for the limit of its user."""
    served = serve(stream_stalled_seconds=0.5, stream_user_limit=1, stream_heartbeat_seconds=0.2)
    line = socket.create_connection(("127.0.0.1", served.port), 10)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    head = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {served.bearer()['Authorization']}\r\n\r\n"
    line.sendall(head.encode())
    assert b" 200 " in line.recv(300)

    def is_free() -> bool:
        for number in range(2000):
            served_fast.publish(
                _channel("u1"), json.dumps({"event": "created", "id": f"n{number}", "at": "x" * 40})
            )
        with served.follow() as one:
            return one.answer.status == 200

    with redis.Redis.from_url(served.settings.cache_redis_url) as served_fast:
        eventually(is_free, seconds=30)
    line.close()


def test_a_user_has_a_limited_number_of_streams(serve: Callable[..., Served]) -> None:
    """The next one is 429 until another is closed; other users are not concerned."""
    served = serve(stream_user_limit=2)
    with served.follow() as first, served.follow():
        first.until("sync")
        with served.follow() as refused:
            assert (refused.answer.status, refused.error["code"]) == (429, "DOMAIN_STREAMS_TOO_MANY")
            assert int(refused.answer.headers["Retry-After"]) > 0
        with served.follow("u2") as other:
            other.until("sync")
        first.close()

        def is_free() -> bool:
            with served.follow() as again:
                return again.answer.status == 200

        eventually(is_free)


def test_a_process_has_a_limited_number_of_streams(serve: Callable[..., Served]) -> None:
    """Whoever comes then is told 503 and when to come again, before anything else is looked at."""
    served = serve(stream_limit=3)
    with ExitStack() as stack:
        clients = [stack.enter_context(served.follow(f"u{number}")).until("sync") for number in range(3)]
        with Follower(served.port) as refused:
            assert (refused.answer.status, refused.error["code"]) == (503, "INFRA_STREAMS_FULL")
            assert refused.answer.headers["Retry-After"] == "5"
        assert get(served.port, "/live")[0] == 200
        clients[0].close()

        def is_free() -> bool:
            with served.follow("u9") as again:
                return again.answer.status == 200

        eventually(is_free)


def test_pages_of_other_origins_read_only_where_that_is_allowed(serve: Callable[..., Served]) -> None:
    """Streams, errors and preflights; no header at all where nothing is allowed."""
    shop, stranger = {"Origin": "https://shop.example.com"}, {"Origin": "https://evil.example.com"}
    closed = serve()
    assert "Access-Control-Allow-Origin" not in get(closed.port, PATH, shop)[1]
    served = serve(stream_allowed_origins="https://shop.example.com, https://other.example.com/")
    for origin, allowed in ((shop, "https://shop.example.com"), (stranger, None)):
        status, headers, _ = get(served.port, PATH, origin)
        assert (status, headers.get("Access-Control-Allow-Origin"), headers["Vary"]) == (401, allowed, "Origin")
        preflight = origin | {"Access-Control-Request-Method": "GET"}
        status, headers, _ = get(served.port, PATH, preflight, "OPTIONS")
        assert (status, headers.get("Access-Control-Allow-Origin")) == (204 if allowed else 405, allowed)
    with Follower(served.port, served.bearer() | shop) as one:
        one.until("sync")
        assert one.answer.headers["Access-Control-Allow-Origin"] == "https://shop.example.com"
        assert one.answer.headers["Vary"] == "Origin"


def test_a_long_life_ends_so_that_clients_spread_again(serve: Callable[..., Served]) -> None:
    """With a word that says why; the client connects again as EventSource does by itself."""
    with serve(stream_lifetime_seconds=0.5).follow() as one:
        eventually(lambda: one.is_over)
        assert one.comments[-1] == "ended: renew"


def test_clients_that_hang_up_leave_nothing(served: Served, redis_client: "redis.Redis") -> None:
    """Two hundred come and go, some before they are answered; no channel and no place is left taken."""
    raw = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {served.bearer()['Authorization']}\r\n\r\n".encode()

    def come_and_go(number: int) -> None:
        with socket.create_connection(("127.0.0.1", served.port), 10) as line:
            line.sendall(raw)
            if number % 2:
                line.recv(100)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(come_and_go, range(200)))
    eventually(lambda: not redis_client.pubsub_channels("inbox:*"))
    with served.follow() as one:
        one.until("sync")


def test_a_stop_tells_clients_when_to_come_back(served: Served) -> None:
    """Each at a moment of its own, within five seconds in all."""
    with ExitStack() as stack:
        clients = [stack.enter_context(served.follow(f"u{number}")).until("sync") for number in range(10)]
        began = time.monotonic()
        served.stop()
        assert time.monotonic() - began < 5
        eventually(lambda: all(client.is_over for client in clients))
        waits = [client.retries[-1] for client in clients]
        assert all(1000 <= wait <= 5000 for wait in waits)
        assert len(set(waits)) > 1
        assert all(client.comments[-1] == "ended: stopped" for client in clients)


def test_the_command_serves_and_stops_on_sigterm(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """`arauto stream` in a process of its own, with a stream that nobody reads when SIGTERM comes."""
    port, log = free_port(), tmp_path / "stream.log"
    environment = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "STREAM_PORT": str(port)}
    child = Child(Launch([sys.executable, "-m", "app.cli", "stream"], log, environment))
    try:
        eventually(lambda: b"stream_started" in log.read_bytes(), seconds=30)
        eventually(lambda: get(port, "/ready")[0] == 200)
        settings = Settings(_env_file=None, redis_url=redis_url, stream_port=port)
        with Served(settings, lambda: None).follow() as one:
            one.until("sync")
            publish(redis_url, "u1", "n1")
            one.until("created")
            began = time.monotonic()
            child.ask_to_stop()
            eventually(lambda: child.poll() is not None, seconds=10)
            assert time.monotonic() - began < 6
            assert child.poll() == 0, tail(log)
            eventually(lambda: one.is_over)
    finally:
        child.stop()
    assert "error" not in log.read_text().lower()
