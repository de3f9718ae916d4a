"""The claim, on real PostgreSQL: who may take a row, and what happens when it is locked meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from app.db import deliveries
from app.db.session import make_engine
from tests import delivery_rows as rows
from tests.waiting import eventually, never


@pytest.fixture
def writes(database_url):
    engine = make_engine(
        database_url, application_name="writes", pool_size=8, autocommit=True, options=deliveries.WRITE_OPTIONS
    )
    yield engine
    engine.dispose()


def claim(engine, ids, attempts=None, lease_seconds=60.0):
    with engine.connect() as connection:
        return deliveries.claim(connection, ids, attempts or [0] * len(ids), "p", lease_seconds)


def is_waiting_for_lock(engine):
    with engine.connect() as connection:
        return connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'writes'"
        ).scalar_one()


@pytest.mark.parametrize("status", ["PENDING", "QUEUED"])
def test_a_claim_makes_a_due_row_sending_under_a_new_token(engine, writes, status):
    """Both states can be claimed: the message may have come before the relay's commit, or after a rescue."""
    ids = rows.add(engine, 1, status=status, lease_token=6)
    [(id_, token, lease_left, expiry_left)] = claim(writes, ids)
    row = rows.row(engine, id_)
    assert (row["status"], row["lease_token"], token, row["attempts"]) == ("SENDING", 7, 7, 0)
    assert 59 < lease_left <= 60
    assert expiry_left is None


@pytest.mark.parametrize("status", ["SENT", "FAILED", "CANCELLED", "EXPIRED", "UNKNOWN", "DELIVERED"])
def test_a_claim_takes_no_row_that_has_moved_on(engine, writes, status):
    """Case B07. Fails when the claim does not compare the state (`claim without CAS`)."""
    more = {"sent_at": "sql:now()", "delivered_at": "sql:now()", "error_code": "x", "uncertain": True}
    ids = rows.add(engine, 1, status=status, **more)
    assert claim(writes, ids) == []
    assert rows.row(engine, ids[0])["status"] == status


def test_a_claim_takes_no_row_that_another_worker_sends(engine, writes):
    """Case A01. Fails when the claim does not compare the state: two workers would send."""
    ids = rows.add(engine, 3)
    assert len(claim(writes, ids)) == 3
    assert claim(writes, ids) == []
    assert {rows.row(engine, id_)["lease_token"] for id_ in ids} == {1}


def test_a_claim_is_tied_to_the_attempts_that_the_worker_saw(engine, writes):
    """Fails when the claim does not compare `attempts` (`countdown not tied to the attempt`)."""
    ids = rows.add(engine, 2, attempts=1)
    assert [row[0] for row in claim(writes, ids, [0, 1])] == [ids[1]]


def test_a_claim_takes_nothing_early_and_nothing_past_its_deadline(engine, writes):
    """Fails without the comparison of `next_attempt_at`, or of `expires_at` (`no expiry check`)."""
    early = rows.add(engine, 1, next_attempt_at="sql:now() + interval '1 s'")
    late = rows.add(engine, 1, expires_at="sql:now() - interval '1 ms'")
    good = rows.add(engine, 1, expires_at="sql:now() + interval '30 s'")
    [(id_, _, _, expiry_left)] = claim(writes, early + late + good)
    assert id_ == good[0]
    assert 29 < expiry_left <= 30


def test_a_claim_waits_for_the_relays_lock_and_then_takes_the_row(engine, writes):
    """The message may overtake the commit that makes its row QUEUED.

    Fails under `claim with SKIP LOCKED`: the row is then missed, its message is acknowledged, and only rescue
    would bring it back.
    """
    ids = rows.add(engine, 2, status="PENDING")
    with ThreadPoolExecutor(1) as pool, engine.begin() as relay:
        relay.exec_driver_sql("SELECT 1 FROM delivery WHERE id = %(id)s FOR UPDATE", {"id": ids[0]})
        claimed = pool.submit(claim, writes, ids)
        eventually(lambda: is_waiting_for_lock(engine))
        relay.exec_driver_sql(
            "UPDATE delivery SET status = 'QUEUED', published_seq = 9 WHERE id = %(id)s", {"id": ids[0]}
        )
        relay.commit()
        assert sorted(row[0] for row in claimed.result(10)) == sorted(ids)


@pytest.mark.parametrize(
    "change",
    [
        "status = 'CANCELLED'",
        "next_attempt_at = now() + interval '1 min'",
        "attempts = attempts + 1",
        "expires_at = now() - interval '1 s'",
        "status = 'SENDING', lease_until = now() + interval '1 min', lease_token = 1",
    ],
)
def test_a_claim_that_waited_looks_at_the_row_again(engine, writes, change):
    """PostgreSQL evaluates the clause again on the version that it waited for; nothing stale is claimed."""
    ids = rows.add(engine, 2)
    with ThreadPoolExecutor(1) as pool, engine.begin() as other:
        other.exec_driver_sql(f"UPDATE delivery SET {change} WHERE id = %(id)s", {"id": ids[0]})
        claimed = pool.submit(claim, writes, ids)
        eventually(lambda: is_waiting_for_lock(engine))
        other.commit()
        assert [row[0] for row in claimed.result(10)] == [ids[1]]


def test_racing_claims_neither_deadlock_nor_share_a_row(engine, writes):
    """Fails when rows are locked in another order than that of their ids: PostgreSQL then ends a racer (40P01).

    The chunks name the same rows in different orders, and a lock in front makes all racers begin at once.
    """
    ids = rows.add(engine, 150)
    for seed in range(8):
        orders = [Random(seed * 6 + racer).sample(ids, len(ids)) for racer in range(6)]
        with ThreadPoolExecutor(6) as pool, engine.begin() as gate:
            gate.exec_driver_sql("LOCK TABLE delivery IN SHARE ROW EXCLUSIVE MODE")
            racers = [pool.submit(claim, writes, order) for order in orders]
            eventually(lambda: is_waiting_for_lock(engine) == 6)
            gate.commit()
            won = [row[0] for racer in racers for row in racer.result(60)]
        assert sorted(won) == sorted(ids)
        rows.change(engine, ids, status="QUEUED", lease_until=None)


def test_claims_and_records_commit_synchronously(run_worker, engine):
    """Fails under `asynchronous commit of the claim`: a claim that a crash forgets is a second SMS."""
    from tests.worker_harness import ScriptedProvider

    provider = ScriptedProvider()
    with run_worker(provider) as running:
        seen = [
            database.run(lambda connection: connection.exec_driver_sql("SHOW synchronous_commit").scalar_one())
            for database in (running.worker._writes, running.worker._reads)
        ]
    assert seen == ["on", "on"]


def test_a_claim_is_visible_to_others_at_once(engine, writes):
    """Each statement commits by itself: no transaction stays open while the provider is called. Case C05."""
    ids = rows.add(engine, 1)
    claim(writes, ids)
    assert rows.row(engine, ids[0])["status"] == "SENDING"
    never(lambda: idle_in_transaction(engine), seconds=0.2)


def idle_in_transaction(engine):
    with engine.connect() as connection:
        return connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"
            " AND application_name = 'writes'"
        ).scalar_one()
