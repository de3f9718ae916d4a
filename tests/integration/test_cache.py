"""The cache on a real server: what it keeps, what it must not keep, and what happens when the server is away."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from app.cache import cache as cache_module
from app.cache.cache import Cache
from app.cache.circuit import Circuit
from app.cache.courier import Courier
from app.cache.era import Era
from app.cache.namespaces import UNREAD, Namespace
from app.wiring import CacheParts
from app.wiring import cache as build
from embedded.ports import free_port
from tests.waiting import eventually

KEY = ("demo", "ana")
Make = Callable[..., CacheParts]


@pytest.fixture
def make(make_settings: Callable[..., Any], redis_url: str) -> Make:
    """A factory of caches as processes of their own have them."""

    def made(url: str = "") -> CacheParts:
        settings = make_settings(
            database_url="postgresql://x", redis_url=url or redis_url, kafka_bootstrap_servers="x"
        )
        return build.__wrapped__(settings)  # type: ignore[attr-defined, no-any-return]

    return made


@pytest.fixture
def parts(make: Make) -> CacheParts:
    return make()


@pytest.fixture
def cache(parts: CacheParts) -> Iterator[Cache]:
    yield parts.cache
    assert parts.courier.flush(5)


class Source:
    """What is read behind the cache; counts the readings."""

    def __init__(self, value: int = 1) -> None:
        self.value = value
        self.loads = 0
        self.before_return: Callable[[], None] = lambda: None

    def __call__(self) -> int:
        self.loads += 1
        read = self.value
        self.before_return()
        return read


def get(cache: Cache, source: Source, namespace: Namespace[int] = UNREAD, key: tuple[str, ...] = KEY) -> int:
    return cache.get_or_load(namespace, key, source)


def test_a_value_is_read_once(cache: Cache, redis_client: "redis.Redis") -> None:
    """And lives as long as its namespace says, under a name that shows no id."""
    source = Source()
    assert [get(cache, source), get(cache, source)] == [1, 1]
    assert source.loads == 1
    (name,) = [name for name in redis_client.keys("*") if b":none" not in name]
    assert b"ana" not in name
    assert 0 < redis_client.ttl(name) <= UNREAD.lifetime_seconds
    assert get(cache, Source(2), key=("demo", "bea")) == 2
    assert get(cache, Source(3), key=("dem", "oana")) == 3


def test_a_write_takes_the_value_out(cache: Cache, parts: CacheParts) -> None:
    """`changing` before its commit, `invalidate` after it; then the value is cached again."""
    source = Source()
    get(cache, source)
    with cache.changing(UNREAD, KEY):
        source.value = 2
        assert get(cache, source) == 2
    assert parts.courier.flush(5)
    assert [get(cache, source), get(cache, source)] == [2, 2]
    assert source.loads == 3
    source.value = 3
    cache.invalidate(UNREAD, KEY)
    assert get(cache, source) == 3


@pytest.mark.parametrize("strong", [True, False], ids=["changing", "invalidate"])
def test_a_reader_that_read_before_a_write_keeps_nothing(cache: Cache, make: Make, *, strong: bool) -> None:
    """The classic race: read the old value, then a whole write elsewhere, then try to keep what was read.

    Fails when `store` does not ask for its lease, and when a write leaves the lease behind.
    """
    source, other = Source(), make()

    def write() -> None:
        source.before_return = lambda: None
        if strong:
            with other.cache.changing(UNREAD, KEY):
                source.value = 2
            assert other.courier.flush(5)
        else:
            source.value = 2
            other.cache.invalidate(UNREAD, KEY)

    source.before_return = write
    assert get(cache, source) == 1
    assert get(cache, source) == 2


def test_a_reader_between_a_mark_and_its_commit_keeps_nothing(cache: Cache, parts: CacheParts, make: Make) -> None:
    """Also when another writer of the same key is done meanwhile, and when the first one dies before its unmark.

    Fails with one mark for all writers.
    """
    source, other = Source(), make()
    first = cache.changing(UNREAD, KEY)
    first.__enter__()
    with other.cache.changing(UNREAD, KEY):
        pass
    assert other.courier.flush(5)
    assert get(cache, source) == 1
    source.value = 2  # the first one commits, and dies
    assert get(cache, source) == 2


def test_a_writer_that_dies_after_its_commit_leaves_nothing_old(
    cache: Cache, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that read before the mark tries to keep what it read, and nobody takes the mark away.

    Fails when a mark leaves the entry, and with it the lease, where it was.
    """
    monkeypatch.setattr(cache_module, "MARK_SECONDS", 1)
    source, writers = Source(), []

    def write_and_die() -> None:
        writers.append(cache.changing(UNREAD, KEY))
        writers[0].__enter__()
        source.value = 2

    source.before_return = write_and_die
    assert get(cache, source) == 1
    source.before_return = lambda: None
    eventually(lambda: not redis_client.keys("*:marks"))
    assert get(cache, source) == 2


def test_a_mark_runs_out(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer whose fate is unknown holds the key for a while and not for ever."""
    monkeypatch.setattr(cache_module, "MARK_SECONDS", 1)
    source = Source()
    with pytest.raises(OSError, match="lost"), cache.changing(UNREAD, KEY):
        raise OSError("lost")
    get(cache, source)
    get(cache, source)
    assert source.loads == 2
    eventually(lambda: (get(cache, source), get(cache, source)) and source.loads, seconds=5)
    loads = source.loads

    def is_cached() -> bool:
        nonlocal loads
        get(cache, source)
        before, loads = loads, source.loads
        return before == source.loads

    eventually(is_cached, seconds=5)


def test_an_evicted_lease_keeps_nothing(cache: Cache, redis_client: "redis.Redis") -> None:
    """The entry may vanish at any time, with its lease."""
    source = Source()
    source.before_return = redis_client.flushall  # type: ignore[assignment]
    get(cache, source)
    assert redis_client.keys("*") == []


def test_many_threads_make_one_reading(cache: Cache) -> None:
    """Those that come while one reads wait for it and read nothing.

    Fails without the single flight.
    """
    source, gate = Source(), threading.Event()
    source.before_return = lambda: gate.wait(5) and None
    with ThreadPoolExecutor(12) as pool:
        results = [pool.submit(get, cache, source) for _ in range(12)]
        eventually(lambda: source.loads >= 1)
        gate.set()
        assert {each.result(10) for each in results} == {1}
    assert source.loads == 1


def test_another_process_waits_a_moment_and_then_reads_too(cache: Cache, make: Make) -> None:
    """Whoever holds the lease may have died: it bounds nobody's answer."""
    source, other, gate = Source(), make(), threading.Event()
    source.before_return = lambda: gate.wait(10) and None
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(get, cache, source)
        eventually(lambda: source.loads == 1)
        assert get(other.cache, Source(1)) == 1
        gate.set()
        assert slow.result(10) == 1


def test_joining_never_answers_from_before_ones_own_write(cache: Cache, parts: CacheParts) -> None:
    """A thread whose write is done does not join a reading that began before it.

    Fails when flights are found by their key instead of by the lease that the server names.
    """
    source, gate = Source(), threading.Event()
    source.before_return = lambda: gate.wait(10) and None
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(get, cache, source)
        eventually(lambda: source.loads == 1)
        with cache.changing(UNREAD, KEY):
            source.value = 2
        assert parts.courier.flush(5)
        source.before_return = lambda: None
        assert get(cache, source) == 2
        gate.set()
        assert slow.result(10) == 1
    assert get(cache, source) == 2


def test_a_failed_reading_frees_the_next_one(cache: Cache, parts: CacheParts) -> None:
    """Its error goes up, nothing is kept, and its lease is given up."""

    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.get_or_load(UNREAD, KEY, fail)
    assert parts.courier.flush(5)
    source = Source()
    assert [get(cache, source), get(cache, source)] == [1, 1]
    assert source.loads == 1


def test_an_entry_is_recomputed_early_by_one(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near its end, with a chance that grows with what a reading costs; the others get the entry meanwhile."""
    source, seen = Source(), []
    get(cache, source)
    monkeypatch.setattr(cache_module.random, "random", lambda: 1.0 - 1e-300)
    monkeypatch.setattr(cache_module.math, "log", lambda _: -1e9)
    source.value = 2
    source.before_return = lambda: seen.append(get(cache, Source(9)))
    assert get(cache, source) == 2
    assert seen == [1]
    monkeypatch.undo()
    assert get(cache, Source(9)) == 2


def test_what_cannot_be_read_is_read_anew(cache: Cache) -> None:
    """An entry of another version of the code is dropped."""
    broken: Namespace[int] = Namespace("unread", 60, lambda _: b"no number", int)
    assert get(cache, Source(1), broken) == 1
    assert get(cache, Source(2)) == 2
    assert get(cache, Source(3)) == 3
    assert get(cache, Source(4)) == 3


def test_without_a_server_everything_is_read_and_nothing_waits(make: Make) -> None:
    """No error, no look-up for a while after the first that failed, and writes go on.

    Fails without the circuit: each request would try.
    """
    parts = make(f"redis://127.0.0.1:{free_port()}/0")
    tried: list[int] = []
    look = parts.cache._look
    parts.cache._look = lambda **named: tried.append(1) or look(**named)  # type: ignore[assignment, func-returns-value]
    source = Source()
    for _ in range(50):
        assert get(parts.cache, source) == 1
    assert source.loads == 50
    assert len(tried) == 1
    with parts.cache.changing(UNREAD, KEY):
        source.value = 2
    assert get(parts.cache, source) == 2


def test_a_write_that_could_not_reach_the_server_is_made_good(cache: Cache, make: Make) -> None:
    """The courier drops the entry as soon as the server answers that writer again.

    Fails when a write that cannot mark forgets about it.
    """
    source, writer = Source(), make()
    get(cache, source)
    writer.cache._circuit.failed()
    with writer.cache.changing(UNREAD, KEY):
        source.value = 2
    assert writer.courier.flush(5)
    assert get(cache, source) == 2


def test_an_entry_of_an_earlier_run_is_not_found(parts: CacheParts) -> None:
    """A server that comes back from a snapshot would show what was dropped since.

    Fails when names do not carry the server's run.
    """
    source = Source()
    get(parts.cache, source)
    parts.cache._era._id = "another-run"  # type: ignore[attr-defined]
    source.value = 2
    assert get(parts.cache, source) == 2


def test_the_first_mark_of_a_process_is_of_the_right_run(cache: Cache, make: Make) -> None:
    """A process learns the run with its first connection, which its first mark may open.

    Fails when a step is not repeated after the run turned out to be another one.
    """
    source = Source()
    get(cache, source)
    writer = make()
    with writer.cache.changing(UNREAD, KEY):
        source.value = 2
        assert get(cache, source) == 2


def test_the_circuit_lets_one_try_when_its_pause_is_over() -> None:
    """Pauses double up to a bound and end with the first success."""
    now = [0.0]
    circuit = Circuit(lambda: now[0])
    assert circuit.is_closed()
    circuit.failed()
    assert not circuit.is_closed()
    now[0] = 0.5
    assert [circuit.is_closed(), circuit.is_closed()] == [True, False]
    for _ in range(10):
        circuit.failed()
    now[0] += 9.9
    assert not circuit.is_closed()
    now[0] += 0.2
    assert circuit.is_closed()
    circuit.succeeded()
    assert [circuit.is_closed(), circuit.is_closed()] == [True, True]


def test_the_courier_keeps_what_is_worth_a_try_and_drops_the_rest() -> None:
    """A server that is away delays nobody, and news that nobody could hear is dropped."""
    client = redis.Redis(port=free_port(), socket_connect_timeout=0.1)
    courier = Courier(client)
    courier.put(lambda: ("PUBLISH", "c", "m"))
    assert courier.flush(5)
    courier.put(lambda: ("DEL", "x"), worth_seconds=60)
    assert not courier.flush(0.2)


def test_an_era_is_the_run_of_the_server(redis_url: str, redis_client: "redis.Redis") -> None:
    """It is learned by connecting."""
    era = Era()
    with redis.Redis.from_url(redis_url, redis_connect_func=era.connected) as client:
        client.ping()
    run = redis_client.info("server")["run_id"]
    assert era() == run[:12]
