"""Limits of requests as a client meets them: headers, 429, who is counted with whom, a Redis that is away."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs
from werkzeug.test import TestResponse

from app.domain.callers import Role
from app.wiring import api_services
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.limits_clock import without_ttl
from tests.waiting import eventually

SOME = f"{PATH}/01a22d60-47d0-79a7-9147-1bc22276754c"
LIMITS = {
    "limit_user_reads": 5,
    "limit_user_writes": 3,
    "limit_user_read_marks": 7,
    "limit_user_deletes": 2,
    "limit_service": 4,
}

MakeApi = Callable[..., Api]


@pytest.fixture
def limited(make_api: MakeApi, redis_url: str) -> Api:
    """The application with small limits and a Redis to count in."""
    return make_api(redis_url=redis_url, limit_timeout_seconds=1.0, **LIMITS)


def person(api: Api, subject: str = "ana", tenant: str = "demo") -> dict[str, str]:
    return api.bearer(tenant, role=Role.USER, subject=subject)


def read(api: Api, headers: dict[str, str]) -> TestResponse:
    return api.app.test_client().get(SOME, headers=headers)


def parsed(header: str) -> tuple[str, dict[str, int]]:
    match = re.fullmatch(r'"([a-z_]+)"((?:;[a-z]=\d+)+)', header)
    assert match, header
    return match[1], {name: int(value) for name, _, value in (p.partition("=") for p in match[2][1:].split(";"))}


def test_every_counted_answer_says_where_the_caller_stands(limited: Api) -> None:
    """On success and on refusal, counting down; and a refused request is 429 with a time to wait."""
    ana = person(limited)
    for left in (4, 3, 2, 1, 0):
        response = read(limited, ana)
        assert response.status_code == 404
        assert response.headers["RateLimit-Policy"] == '"read";q=5;w=60'
        name, standing = parsed(response.headers["RateLimit"])
        assert (name, standing["r"]) == ("read", left)
        assert 1 <= standing["t"] <= 62
    response = read(limited, ana)
    assert response.status_code == 429
    assert error_of(response)["code"] == "DOMAIN_RATE_LIMITED"
    assert parsed(response.headers["RateLimit"])[1]["r"] == 0
    assert 1 <= int(response.headers["Retry-After"]) <= 62
    assert "Retry-After" not in read(limited, person(limited, "bea")).headers


def test_kinds_and_persons_do_not_use_up_each_others(limited: Api, rows: Any) -> None:
    """Who cannot read any more can still write; and nothing of it touches another person or tenant."""
    ana = person(limited)
    for _ in range(6):
        read(limited, ana)
    body = sms(user_id="ana")
    sent = [
        limited.app.test_client().post(PATH, json=body, headers=ana | {"Idempotency-Key": str(n)})
        for n in range(4)
    ]
    assert [each.status_code for each in sent] == [202, 202, 202, 429]
    assert parsed(sent[0].headers["RateLimit"])[0] == "write"
    assert len(rows("SELECT FROM notification")) == 3, "what is refused has no effect"
    for other in (person(limited, "bea"), person(limited, "ana", "other")):
        assert parsed(read(limited, other).headers["RateLimit"])[1]["r"] == 4


def test_a_service_has_a_limit_a_second_for_its_tenant(limited: Api) -> None:
    """All services and keys of a tenant together; persons and other tenants are not held up by it."""
    served: list[float] = []

    def is_refused() -> bool:
        asked = time.monotonic()
        response = read(limited, limited.bearer(role=(Role.SERVICE, Role.ADMIN)[len(served) % 2]))
        if response.status_code == 404:
            served.append(asked)
        assert response.headers["RateLimit-Policy"] == '"service";q=4;w=1'
        return response.status_code == 429

    eventually(is_refused)
    assert len(served) >= 4
    busiest = max(sum(start <= each < start + 0.9 for each in served) for start in served)
    assert busiest <= 4
    assert read(limited, limited.bearer("other")).status_code == 404
    assert read(limited, person(limited)).status_code == 404
    eventually(lambda: read(limited, limited.bearer()).status_code == 404, seconds=3)


def test_limits_of_single_tenants_can_be_chosen(make_api: MakeApi, redis_url: str) -> None:
    """More for one, none for another."""
    api = make_api(redis_url=redis_url, limit_tenants="big=2000, free=0", limit_timeout_seconds=1.0)
    assert read(api, api.bearer("big")).headers["RateLimit-Policy"] == '"service";q=2000;w=1'
    assert "RateLimit" not in read(api, api.bearer("free")).headers
    assert read(api, api.bearer("demo")).headers["RateLimit-Policy"] == '"service";q=1000;w=1'


def test_who_lacks_a_scope_is_counted_too(limited: Api) -> None:
    """Else somebody could knock at a closed door without end."""
    ana = limited.bearer(scope="notifications:write", role=Role.USER, subject="ana")
    statuses = [read(limited, ana).status_code for _ in range(7)]
    assert statuses == [403] * 5 + [429] * 2


def test_nothing_in_redis_stays_for_ever_or_names_anybody(limited: Api, redis_client: "redis.Redis") -> None:
    """Case A21. Every key has a time to live, and no subject, tenant or address is in a name or a value."""
    read(limited, person(limited, "ana@example.com"))
    read(limited, limited.bearer())
    read(limited, {"Authorization": "Bearer nonsense"})
    keys = redis_client.keys("arauto:limit:*")
    assert len(keys) == 3
    assert not without_ttl(redis_client)
    for key in keys:
        whole = key + redis_client.get(key)
        assert not any(word in whole for word in (b"ana", b"demo", b"127.0.0.1")), whole


def test_failed_sign_ins_are_limited_and_good_ones_are_not(make_api: MakeApi, redis_url: str) -> None:
    """From one address: the third failure is 429. A good token from there is taken all the same, at any time.

    Fails when the address is refused before the token is looked at.
    """
    api = make_api(redis_url=redis_url, limit_sign_in_failures=2, limit_timeout_seconds=1.0)
    bad = {"Authorization": "Bearer nonsense"}
    assert [read(api, bad).status_code for _ in range(4)] == [401, 401, 429, 429]
    response = read(api, {})
    assert response.status_code == 429
    assert error_of(response)["code"] == "AUTH_RATE_LIMITED"
    assert int(response.headers["Retry-After"]) >= 1
    assert read(api, api.bearer()).status_code == 404
    elsewhere = api.app.test_client().get(SOME, headers=bad, environ_base={"REMOTE_ADDR": "198.51.100.7"})
    assert elsewhere.status_code == 401


def test_a_client_cannot_choose_whose_failures_it_adds_to(make_api: MakeApi, redis_url: str) -> None:
    """`X-Forwarded-For` counts only on a connection from a proxy of ours. Fails when everybody is believed."""
    bad = {"Authorization": "Bearer nonsense"}

    def fail(api: Api, number: int) -> int:
        return read(api, bad | {"X-Forwarded-For": f"203.0.113.{number}"}).status_code

    alone = make_api(redis_url=redis_url, limit_sign_in_failures=2, limit_timeout_seconds=1.0)
    assert [fail(alone, number) for number in range(4)] == [401, 401, 429, 429]
    behind = make_api(
        redis_url=redis_url, limit_sign_in_failures=2, trusted_proxies="127.0.0.0/8", limit_timeout_seconds=1.0
    )
    assert [fail(behind, number) for number in range(4)] == [401] * 4
    assert [fail(behind, 1) for _ in range(3)] == [401, 429, 429]


def test_without_redis_nobody_is_refused(make_api: MakeApi) -> None:
    """No limit, no headers, no delay, and one line in the log for the whole outage."""
    api = make_api(limit_user_reads=1, limit_sign_in_failures=1)
    ana = person(api)
    with capture_logs() as logs:
        began = time.monotonic()
        responses = [read(api, ana) for _ in range(50)]
        elapsed = time.monotonic() - began
    assert {each.status_code for each in responses} == {404}
    assert not any("RateLimit" in each.headers or "Retry-After" in each.headers for each in responses)
    assert elapsed < 5
    assert [each["event"] for each in logs if "redis" in each["event"]] == ["redis_passed_over"]
    assert {read(api, {}).status_code for _ in range(3)} == {401}


def test_a_redis_that_hangs_delays_one_request(make_api: MakeApi, redis_url: str, redis_client: Any) -> None:
    """Paused, it holds up one request for LIMIT_TIMEOUT_SECONDS and no other; once it answers, it counts again."""
    api = make_api(redis_url=redis_url, limit_timeout_seconds=0.2)
    ana = person(api)
    assert "RateLimit" in read(api, ana).headers
    redis_client.execute_command("CLIENT", "PAUSE", 2000, "ALL")
    took = []
    for _ in range(20):
        began = time.monotonic()
        assert "RateLimit" not in read(api, ana).headers
        took.append(time.monotonic() - began)
    assert sum(took) < 1.9, "all of this while it was paused"
    assert sum(each > 0.15 for each in took) == 1, took
    eventually(lambda: "RateLimit" in read(api, ana).headers, seconds=10)


def test_good_requests_are_not_recorded_as_failures(limited: Api) -> None:
    """The audit log hears of failures alone."""
    read(limited, limited.bearer())
    assert api_services(limited.settings).sign_in_failures._counts == {}
