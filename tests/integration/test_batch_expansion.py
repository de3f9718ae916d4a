"""The expander on a real database: exactly once under kills and races, in turn, and called off at once."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from app.domain.batches import Source
from app.domain.callers import Caller
from app.domain.kinds import Channel, Priority
from app.services.accept.submission import IdempotencyKey
from app.services.batches.expand import Expand
from app.services.batches.submission import BatchSubmission
from app.settings import Settings
from app.wiring import BatchServices, api_services
from tests.batch_parts import add_users, batch, made, make_expander
from tests.meta import ROOT
from tests.pipeline_parts import sql
from tests.waiting import eventually

CALLER = Caller("tests", "demo", frozenset())
_STATES = "SELECT status, count(*) FROM delivery GROUP BY status"


@pytest.fixture
def services(make_settings) -> BatchServices:
    """The use cases of batches, without a broker to wake anybody."""
    settings: Settings = make_settings(redis_url="redis://127.0.0.1:1/0", kafka_bootstrap_servers="127.0.0.1:1")
    return api_services(settings).batches


@pytest.fixture
def expander(database_url: str) -> Iterator[Expand]:
    made = make_expander(database_url, chunk=50)
    yield made
    made.engine.dispose()


def accepted(services: BatchServices, tenant: str = "demo", **chosen: Any) -> str:
    """Accept a batch over all users of a tenant and return its id."""
    values: dict[str, Any] = {
        "source": Source.SEGMENT,
        "category": "news",
        "priority": Priority.LOW,
        "channels": (Channel.SMS,),
        "title": "Sale",
        "body": "Everything must go.",
        "html": None,
        "template": None,
        "payload": {},
        "metadata": {},
        "scheduled_at": None,
        "expires_in": None,
        "canary": None,
        "segment": {},
    } | chosen
    key = IdempotencyKey("POST /v1/notifications/batch", str(random.random()), b"x")
    caller = Caller("tests", tenant, frozenset())
    import orjson

    return str(orjson.loads(services.accept(caller, BatchSubmission(**values), key).text)["id"])


def test_an_expander_that_is_killed_again_and_again_loses_and_doubles_nothing(
    services, engine: Engine, database_url: str
):
    """Each recipient gets one notification, whatever moment the process dies in.

    Fails when the place to go on from is committed before the rows (lost), or after them (double).
    """
    add_users(engine, 3000)
    identifier = accepted(services)
    command = [sys.executable, "-m", "tests.integration.batch_expander", database_url, "100"]
    kills = 0
    for _ in range(60):
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        before = batch(engine, identifier)["chunk_count"]
        wanted = before + random.randint(1, 12)
        eventually(
            lambda child=child, wanted=wanted: (
                child.poll() is not None or batch(engine, identifier)["chunk_count"] >= wanted
            ),
            seconds=30,
            every_seconds=random.uniform(0.001, 0.01),
        )
        kills += child.poll() is None
        child.kill()
        child.wait()
        child.stdout.close()
        if batch(engine, identifier)["state"] == "COMPLETED":
            break
    row = batch(engine, identifier)
    users = [user for user, _ in made(engine, identifier)]
    assert (row["state"], row["made_count"], row["chunk_count"]) == ("COMPLETED", 3000, 30)
    assert users == [f"u{n:07d}" for n in range(1, 3001)]
    assert kills >= 3


def test_two_expanders_share_the_work_and_double_nothing(services, engine: Engine, database_url: str):
    """One waits for nobody: what another holds it passes over.

    Fails when the batch is chosen without its lock, or another is waited for.
    """
    add_users(engine, 2000)
    identifiers = [accepted(services) for _ in range(3)]

    def work() -> None:
        expander = make_expander(database_url, chunk=100)
        while any(batch(engine, one)["state"] != "COMPLETED" for one in identifiers):
            expander.run(0.5)
        expander.engine.dispose()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for identifier in identifiers:
        assert [user for user, _ in made(engine, identifier)] == [f"u{n:07d}" for n in range(1, 2001)]
        ranges = sql(engine, "SELECT low FROM batch_chunk WHERE batch_id = %(id)s::uuid", id=identifier)
        assert len(ranges) == len(set(ranges)) == 20


def test_batches_and_tenants_take_turns(services, engine: Engine, expander: Expand):
    """A tenant with three batches gets no more chunks than a tenant with one.

    Fails when the oldest batch goes first, or turns are by the batch alone.
    """
    for tenant in ("demo", "other"):
        add_users(engine, 2000, tenant=tenant)
    many = [accepted(services) for _ in range(3)]
    one = accepted(services, "other")
    for _ in range(8):  # promoted and measured
        expander.step()
    start = {each: batch(engine, each)["chunk_count"] for each in (*many, one)}
    for _ in range(24):
        expander.step()
    gained = {each: batch(engine, each)["chunk_count"] - start[each] for each in (*many, one)}
    assert abs(gained[one] - 12) <= 2, gained
    assert all(abs(gained[each] - 4) <= 2 for each in many), gained


def test_only_so_many_batches_of_a_tenant_run_at_a_time(services, engine: Engine, database_url: str):
    """The others wait as ACCEPTED, and begin when one has ended."""
    expander = make_expander(database_url, chunk=10, running_limit=2)
    add_users(engine, 30)
    identifiers = [accepted(services) for _ in range(4)]
    seen = 0
    while expander.step():
        states = [batch(engine, each)["state"] for each in identifiers]
        seen = max(seen, states.count("RUNNING"))
    assert seen == 2
    assert {batch(engine, each)["state"] for each in identifiers} == {"COMPLETED"}
    expander.engine.dispose()


def test_cancel_at_half_stops_at_once_and_the_numbers_add_up(services, engine: Engine, expander: Expand):
    """Nothing is made after the request was answered; sent, waiting and cancelled are all that was made.

    Fails when the expander does not look at the state under the lock, or a chunk is left out of the cancelling.
    """
    add_users(engine, 1000)
    identifier = accepted(services)
    while batch(engine, identifier)["made_count"] < 500:
        expander.step()
    sql(
        engine,
        "UPDATE delivery SET status = 'SENT', sent_at = now()"
        " WHERE id IN (SELECT id FROM delivery ORDER BY id LIMIT 70)",
    )
    sql(
        engine,
        "UPDATE delivery SET status = 'SENDING', lease_until = now() + interval '1 min', lease_token = 1"
        " WHERE id IN (SELECT id FROM delivery WHERE status = 'PENDING' ORDER BY id LIMIT 5)",
    )
    services.manage.cancel(CALLER, identifier)
    count = len(made(engine, identifier))
    while expander.step():
        pass
    row = services.manage.read(CALLER, identifier)
    assert (row.state, row.reason, row.made_count, len(made(engine, identifier))) == (
        "CANCELLED",
        "user",
        500,
        count,
    )
    assert row.states == {"SENT": 70, "SENDING": 5, "CANCELLED": 425} == dict(sql(engine, _STATES))
    assert sum(row.states.values()) == row.delivery_count
    asked = sql(
        engine, "SELECT count(*) FROM delivery WHERE status = 'SENDING' AND cancel_requested_at IS NOT NULL"
    )
    assert asked == [(5,)]


def test_a_batch_that_ended_is_recalled(services, engine: Engine, expander: Expand):
    """What waits is cancelled, other batches stay, and a second recall changes nothing."""
    add_users(engine, 120)
    keep = accepted(services)
    identifier = accepted(services)
    expander.run(20)
    for _ in range(2):
        services.manage.recall(CALLER, identifier)
        expander.run(20)
    row = services.manage.read(CALLER, identifier)
    assert (row.state, row.reason, row.states) == ("CANCELLED", "recalled", {"CANCELLED": 120})
    assert services.manage.read(CALLER, keep).states == {"PENDING": 120}


def test_a_pause_holds_until_it_is_resumed(services, engine: Engine, expander: Expand):
    """Nothing is made meanwhile; the rest goes on where it was."""
    add_users(engine, 300)
    identifier = accepted(services)
    while batch(engine, identifier)["made_count"] < 100:
        expander.step()
    services.manage.pause(CALLER, identifier)
    services.manage.pause(CALLER, identifier)
    assert not expander.step()
    assert len(made(engine, identifier)) == 100
    services.manage.resume(CALLER, identifier)
    expander.run(20)
    assert len(made(engine, identifier)) == 300


def test_requests_that_race_with_the_expander_lose_and_double_nothing(services, engine: Engine, database_url: str):
    """Pauses and resumes come at any moment of a chunk."""
    add_users(engine, 3000)
    identifier = accepted(services)
    expander = make_expander(database_url, chunk=100)
    over = threading.Event()

    def disturb() -> None:
        from app.services.refusal import Refused

        while not over.is_set():
            for change in (services.manage.pause, services.manage.resume):
                try:
                    change(CALLER, identifier)
                except Refused:
                    continue

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        eventually(lambda: not expander.run(1.0) and batch(engine, identifier)["state"] == "COMPLETED", seconds=60)
    finally:
        over.set()
        thread.join(20)
    assert [user for user, _ in made(engine, identifier)] == [f"u{n:07d}" for n in range(1, 3001)]
    expander.engine.dispose()


def test_an_error_of_ours_sets_the_batch_aside(services, engine: Engine, expander: Expand):
    """It stands still and says so; others go on."""
    add_users(engine, 60)
    broken, good = accepted(services), accepted(services)
    sql(engine, "UPDATE batch SET sealed = '\\x00' WHERE id = %(id)s::uuid", id=broken)
    expander.run(20)
    assert (batch(engine, broken)["state"], batch(engine, broken)["reason"]) == ("PAUSED", "error")
    assert batch(engine, good)["state"] == "COMPLETED"


def test_a_deadline_ends_the_expansion(services, engine: Engine, expander: Expand):
    """Past it nobody is written to any more: the batch has FAILED, and what was made expires like any other."""
    add_users(engine, 200)
    identifier = accepted(services, expires_in=3600)
    while batch(engine, identifier)["made_count"] < 100:
        expander.step()
    (expires_at,) = sql(engine, "SELECT DISTINCT date_trunc('minute', expires_at) FROM delivery")
    assert expires_at[0] is not None
    sql(engine, "UPDATE batch SET expires_at = now()")
    expander.run(20)
    row = batch(engine, identifier)
    assert (row["state"], row["reason"], row["made_count"]) == ("FAILED", "deadline_passed", 100)


def test_a_filter_that_hardly_anybody_fits_takes_short_steps(
    services, engine: Engine, expander: Expand, monkeypatch
):
    """A step looks at so many users and no more, and goes on behind them."""
    monkeypatch.setattr("app.db.segments.LOOKED_AT", 100)
    add_users(engine, 1000)
    identifier = accepted(services, segment={"attributes": {"n": {"in": [3, 999]}}})
    steps = 0
    while expander.step():
        steps += 1
    assert steps >= 10
    assert [user for user, _ in made(engine, identifier)] == ["u0000003", "u0000999"]


def test_what_was_read_ahead_counts_for_a_moment_only(services, engine: Engine, database_url: str):
    """Users who were suspended while a batch stood still get nothing of its next chunk.

    Fails when what was read ahead never gets too old.
    """
    now = [0.0]
    expander = make_expander(database_url, chunk=50, clock=lambda: now[0])
    add_users(engine, 150)
    identifier = accepted(services)
    while batch(engine, identifier)["made_count"] < 50:
        expander.step()
    sql(engine, "UPDATE app_user SET status = 'SUSPENDED'")
    now[0] = 1.0
    while expander.step():
        pass
    assert batch(engine, identifier)["made_count"] == 50
    expander.engine.dispose()


def test_progress_follows_the_deliveries(services, engine: Engine, expander: Expand):
    """Chunks are counted again while something of them can change, and the sums add up at any time."""
    add_users(engine, 120)
    identifier = accepted(services)
    expander.run(20)
    assert services.manage.read(CALLER, identifier).states == {"PENDING": 120}
    sql(engine, "UPDATE delivery SET status = 'DELIVERED', delivered_at = now()")
    sql(engine, "UPDATE batch_chunk SET next_count_at = now()")
    assert not expander.run(5)
    assert services.manage.read(CALLER, identifier).states == {"DELIVERED": 120}
    assert sql(engine, "SELECT count(*) FROM batch_chunk WHERE next_count_at IS NOT NULL") == [(0,)]
