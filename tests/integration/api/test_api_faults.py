"""The API while something it needs is slow or gone: bounded answers, no leaked connection, threads left free."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest
from sqlalchemy.engine import Row
from werkzeug.test import TestResponse

from app.db.requests import RequestPool
from app.services.health import Health, HealthChecks, Part, reach
from app.wiring import api_services
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.waiting import eventually

Rows = Callable[..., list[Row[Any]]]


def timed(call: Callable[[], TestResponse]) -> tuple[TestResponse, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


def pool_of(api: Api) -> RequestPool:
    return api_services(api.settings).accept._pool


@contextmanager
def table_locked(database_url: str) -> Iterator[None]:
    """Nobody can accept while this holds: as slow as a database can be."""
    connection = psycopg2.connect(database_url)
    try:
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE idempotency_key")
        yield
    finally:
        connection.close()


@contextmanager
def mute_server() -> Iterator[int]:
    """A port that takes connections and never says a word, like a paused Redis."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_refused_requests_give_their_connection_back(make_api: Callable[..., Api]) -> None:
    """Case F03, first half. After 401, 404 and 422 nothing is checked out, and the next request works."""
    api = make_api(api_database_pool=2)
    reused = api.post(sms(), key="k")
    for _ in range(10):
        assert api.client.post(PATH, json=sms()).status_code == 401
        assert api.read("01a22d60-47d0-79a7-9147-1bc22276754c").status_code == 404
        assert api.post(sms(1), key="k").status_code == 422
    assert reused.status_code == api.post(sms()).status_code == 202
    assert pool_of(api).in_use == 0


def test_a_pool_that_is_used_up_is_503_at_once_and_leaves_threads_free(
    make_api: Callable[..., Api], database_url: str
) -> None:
    """Case F03, second half. The first to find no connection waits for one; those after it do not wait at all."""
    api = make_api(api_database_pool=2, api_statement_timeout_seconds=6.0, api_pool_timeout_seconds=1.0)
    api.post(sms())
    with table_locked(database_url), ThreadPoolExecutor(2) as threads:
        held = [threads.submit(api.post, sms()) for _ in range(2)]
        eventually(lambda: pool_of(api).in_use == 2)
        first, waited = timed(lambda: api.post(sms()))
        assert (first.status_code, first.headers["Retry-After"]) == (503, "1")
        assert error_of(first)["code"] == "INFRA_DATABASE_BUSY"
        assert 1 <= waited < 4
        began = time.monotonic()
        assert {api.post(sms()).status_code for _ in range(4)} == {503}
        assert time.monotonic() - began < 3
        assert api.client.get("/live").status_code == 200
        assert api.client.get("/ready").status_code == 200
    assert all(each.result().status_code in {202, 503} for each in held)
    eventually(lambda: api.post(sms()).status_code == 202)


def test_a_slow_statement_is_ended_by_the_server(make_api: Callable[..., Api], database_url: str) -> None:
    """503 with Retry-After when the statement's time is over; the connection can be used again."""
    api = make_api(api_database_pool=1, api_statement_timeout_seconds=0.3)
    with table_locked(database_url):
        response, waited = timed(lambda: api.post(sms(), key="k"))
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    assert error_of(response)["code"] == "INFRA_DATABASE_UNAVAILABLE"
    assert waited < 5
    assert api.post(sms(), key="k").status_code == 202


def test_a_database_that_is_down_is_503_in_bounded_time(make_api: Callable[..., Api]) -> None:
    """Every route says so in its own way, and /live does not care."""
    api = make_api(database_url="postgresql://arauto@127.0.0.1:1/arauto")
    response, waited = timed(lambda: api.post(sms()))
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    assert error_of(response)["code"] == "INFRA_DATABASE_UNAVAILABLE"
    assert waited < 5
    assert api.read("01a22d60-47d0-79a7-9147-1bc22276754c").status_code == 503
    for path in ("/ready", "/startup"):
        response = api.client.get(path)
        assert response.status_code == 503
        assert error_of(response)["code"] == "INFRA_DATABASE_UNAVAILABLE"
    response = api.client.get("/health")
    assert response.status_code == 503
    assert response.get_json()["status"] == "down"
    assert response.get_json()["checks"]["database"] == "down"
    assert api.client.get("/live").status_code == 200


def test_connections_that_were_ended_by_a_restart_are_not_noticed(api: Api, rows: Rows) -> None:
    """The request is repeated on a fresh connection, under the same key, and so is the next one."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: api.post(sms()), range(8)))
    rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'arauto-api'")
    for _ in range(6):
        assert api.post(sms()).status_code == 202
    assert len(rows("SELECT FROM notification")) == 14


def test_a_backend_that_stops_answering_is_hung_up_on(make_api: Callable[..., Api], rows: Rows) -> None:
    """Fails without the watch over busy connections: no time-out of the server's ends this wait."""
    api = make_api(api_database_pool=1, api_statement_timeout_seconds=0.2)
    assert api.post(sms()).status_code == 202
    (backend,) = rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'arauto-api'")
    os.kill(backend.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        try:
            response = thread.submit(api.post, sms(), key="k").result(20)
        finally:
            os.kill(backend.pid, signal.SIGCONT)
    assert response.status_code == 202
    assert len(rows("SELECT FROM notification")) == 2


def test_an_absent_or_silent_redis_does_not_hold_up_a_request(make_api: Callable[..., Api]) -> None:
    """Case A13. Nothing but the database is needed to accept; the nudge gives up within a fraction of a second."""
    with mute_server() as port:
        for redis_url in (f"redis://127.0.0.1:{port}/0", "redis://127.0.0.1:1/0"):
            api = make_api(redis_url=redis_url)
            for _ in range(3):
                response, waited = timed(lambda api=api: api.post(sms(priority="HIGH")))
                assert response.status_code == 202
                assert waited < 3


def test_an_accepted_notification_wakes_the_relay(
    make_api: Callable[..., Api], redis_url: str, redis_client: Any
) -> None:
    """What is due now nudges, what is scheduled does not."""
    api = make_api(redis_url=redis_url)
    api.post(sms(scheduled_at="2099-01-01T00:00:00Z", priority="HIGH"))
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    assert api.post(sms(scheduled_at=later, priority="HIGH")).status_code == 202
    assert redis_client.llen("relay") == 0
    assert api.post(sms(priority="HIGH")).status_code == 202
    assert redis_client.llen("relay") == 1


def test_health_names_the_part_that_is_missing(make_api: Callable[..., Api], redis_url: str) -> None:
    """`degraded` is still 200: what is accepted waits in the table."""
    api = make_api(redis_url=redis_url)
    response = api.client.get("/health")
    assert response.status_code == 200
    body = response.get_json()
    assert body["status"] == "degraded"
    assert body["timestamp"].endswith("Z")
    assert body["checks"] == {"database": "ok", "redis": "ok", "message_queue": "down"}
    direct = make_api(redis_url=redis_url, transport="direct").client.get("/health").get_json()
    assert direct["status"] == "ok"
    for path in ("/live", "/ready", "/startup"):
        assert api.client.get(path).get_json() == {"status": "ok"}


def test_a_database_without_tables_has_not_started(make_api: Callable[..., Api], empty_database_url: str) -> None:
    """/ready only asks whether it answers, /startup whether it has been migrated."""
    api = make_api(database_url=empty_database_url)
    assert api.client.get("/startup").status_code == 503


def test_one_slow_check_holds_up_one_thread() -> None:
    """Fails when every request for health asks the slow part itself."""
    asked = threading.Semaphore(0)
    release = threading.Event()
    now = [0.0]

    def slow() -> None:
        asked.release()
        release.wait(10)

    part = Part("database", slow, lambda: now[0])
    release.set()
    assert part.is_up()
    release.clear()
    now[0] = 2.0
    asking = threading.Thread(target=part.is_up)
    asked.acquire()
    asking.start()
    assert asked.acquire(timeout=5)
    began = time.monotonic()
    assert part.is_up(), "the last answer still counts"
    now[0] = 6.0
    assert not part.is_up(), "but not for ever"
    assert time.monotonic() - began < 1
    release.set()
    asking.join(5)
    assert part.is_up()


def test_the_whole_is_down_only_without_the_database() -> None:
    """The three words of the health answer."""

    def broken() -> None:
        raise OSError

    def part(*, works: bool) -> Part:
        return Part("part", (lambda: None) if works else broken)

    for database, redis, whole in (
        (True, True, Health.OK),
        (True, False, Health.DEGRADED),
        (False, True, Health.DOWN),
    ):
        checks = HealthChecks(part(works=database), {"redis": part(works=redis)}, lambda: True)
        assert checks.report()[0] is whole
        assert checks.is_ready() is checks.has_started() is database


def test_any_of_several_addresses_is_enough() -> None:
    """Bootstrap servers are a list, and IPv6 addresses have brackets."""
    with mute_server() as port:
        reach(f"127.0.0.1:1, 127.0.0.1:{port}", 1.0)
    with pytest.raises(OSError, match="refused"):
        reach("127.0.0.1:1,[::1]:1", 1.0)


def test_a_surprise_is_500_in_the_one_shape(api: Api, rows: Rows) -> None:
    """A table that is gone is our fault: 500, logged, and nothing of the cause in the answer."""
    rows("DROP TABLE idempotency_key")
    response = api.post(sms())
    assert response.status_code == 500
    assert error_of(response)["code"] == "INFRA_INTERNAL"
    assert "idempotency_key" not in response.text
