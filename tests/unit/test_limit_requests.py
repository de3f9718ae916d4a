"""The limits of requests without a server: what is taken at once, what happens without Redis, who is counted."""

import threading

import pytest
from redis import ConnectionError as RedisDownError

from app.domain.callers import Caller, Role
from app.domain.request_kinds import RequestKind
from app.limits.circuit import Circuit
from app.limits.requests import Taken
from app.services.limit_requests import LimitRequests, Quotas
from tests.waiting import eventually

USERS = dict.fromkeys(RequestKind, 5)


class Clock:
    """Stands still until told otherwise."""

    now = 100.0

    def __call__(self):
        return self.now


class Windows:
    """Grants what is left, or fails; remembers what was asked."""

    def __init__(self, left=1000):
        self.left = left
        self.asked = []
        self.is_away = False

    def take(self, name, quota, want=1):
        self.asked.append((name, quota.limit, want))
        if self.is_away:
            raise RedisDownError
        granted = min(want, self.left)
        self.left -= granted
        return Taken(granted, self.left, 0.5)


def made(windows, clock=None, probe=lambda: None, **chosen):
    clock = clock or Clock()
    quotas = Quotas(**({"users": USERS, "service": 1000, "tenants": {}, "sign_in_failures": 3} | chosen))
    return LimitRequests(windows, Circuit("test", probe, clock), quotas, clock)


def service(tenant="demo"):
    return Caller("shop", tenant, frozenset())


def user(subject="ana", tenant="demo"):
    return Caller(subject, tenant, frozenset(), Role.USER)


def test_a_busy_service_asks_once_for_many_requests():
    """At 600 requests a second one in about fifteen makes a round trip; each of them is taken before it is served.

    Fails when every request asks, and when more are served than were taken.
    """
    windows, clock = Windows(100_000), Clock()
    limits = made(windows, clock)
    for served in range(1, 1201):
        clock.now += 1 / 600
        assert not limits.request(service(), RequestKind.READ).is_over
        assert sum(want for *_, want in windows.asked) >= served
    assert len(windows.asked) < 1200 / 8
    assert max(want for *_, want in windows.asked) <= 50


def test_a_quiet_service_takes_one_at_a_time():
    """So that a process which serves little keeps nothing from the others."""
    windows, clock = Windows(), Clock()
    limits = made(windows, clock)
    for _ in range(10):
        clock.now += 1.0
        limits.request(service(), RequestKind.READ)
    assert {want for *_, want in windows.asked} == {1}


def test_what_was_taken_is_not_used_after_its_hold():
    """The window counts it for no longer than that. Fails when an old allotment is handed out later."""
    windows, clock = Windows(), Clock()
    limits = made(windows, clock)
    for _ in range(200):
        limits.request(service(), RequestKind.READ)
    assert windows.left < 1000 - 200, "some are left over here"
    before = len(windows.asked)
    clock.now += 0.03
    limits.request(service(), RequestKind.READ)
    assert len(windows.asked) == before + 1


def test_a_used_up_tenant_is_refused_and_another_is_not():
    """Per tenant, whatever the kind; some tenants have a number of their own, and 0 is none at all."""
    windows = Windows(0)
    limits = made(windows, tenants={"big": 5000, "free": 0})
    standing = limits.request(service(), RequestKind.DELETE)
    assert (standing.is_over, standing.name, standing.limit, standing.left) == (True, "service", 1000, 0)
    assert limits.request(service("big"), RequestKind.READ).limit == 5000
    assert limits.request(service("free"), RequestKind.READ) is None
    assert len({name for name, *_ in windows.asked}) == 2


def test_persons_are_counted_apart_and_by_kind():
    """Nobody uses up what is another's, of the same name in another tenant either; no name tells who it is."""
    windows = Windows()
    limits = made(windows)
    callers = (user(), user("bea"), user(tenant="other"), user("demo", "ana"))
    for caller in callers:
        for kind in RequestKind:
            assert limits.request(caller, kind).name == kind.value
    names = [name for name, *_ in windows.asked]
    assert len(set(names)) == len(names) == 16
    assert not [name for name in names if "ana" in name or "demo" in name]


def test_without_redis_nobody_is_refused_and_nobody_asks_twice():
    """One failure, then one look a second by a thread of its own; once it is back requests are counted again.

    Fails when each request tries, and when a request makes the look itself.
    """
    windows, clock = Windows(), Clock()
    looks = []

    def probe():
        looks.append(threading.current_thread() is not threading.main_thread())
        if windows.is_away:
            raise RedisDownError

    limits = made(windows, clock, probe)
    windows.is_away = True
    for _ in range(300):
        clock.now += 0.01
        assert limits.request(user(), RequestKind.READ) is None
        assert limits.failed_sign_in("192.0.2.1") is None
        eventually(lambda: limits._circuit._probing is None or not limits._circuit._probing.is_alive())
    assert len(windows.asked) == 1
    assert len(looks) <= 3
    assert all(looks)
    windows.is_away = False
    clock.now += 1.1
    assert limits.request(user(), RequestKind.READ) is None
    eventually(lambda: limits.request(user(), RequestKind.READ) is not None)


def test_failed_sign_ins_from_one_address_are_told_apart_from_others():
    """A flood is told once and then known here; an address that is none counts for nobody."""
    windows, clock = Windows(3), Clock()
    limits = made(windows, clock)
    assert [limits.failed_sign_in("192.0.2.1") for _ in range(3)] == [None] * 3
    for _ in range(100):
        assert limits.failed_sign_in("192.0.2.1").is_over
    assert len(windows.asked) == 4
    assert limits.failed_sign_in(None) is None
    clock.now += 0.6
    windows.left = 1
    assert limits.failed_sign_in("192.0.2.1") is None


@pytest.mark.parametrize("kind", RequestKind)
def test_a_limit_of_nothing_counts_nothing(kind):
    """0 stands for any number of requests, and asks nobody."""
    windows = Windows()
    limits = made(windows, users=dict.fromkeys(RequestKind, 0), service=0, sign_in_failures=0)
    assert limits.request(user(), kind) is None
    assert limits.request(service(), kind) is None
    assert limits.failed_sign_in("192.0.2.1") is None
    assert windows.asked == []
