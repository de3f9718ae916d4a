"""Retention: whole days go, what was accepted stays accounted for, and nothing in flight is ever dropped."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from app.db import partitions
from app.domain.states import OPEN, TERMINAL
from app.services.ledger import Ledger
from app.services.replay import Replay
from app.services.retention import Retention
from tests.integration.rows import make_day, noon, put, utc_today

_OLD = 40


def retention(engine: Engine) -> Retention:
    return Retention(engine, retention_days=30, idempotency_days=7, audit_days=400)


def tables(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(connection.exec_driver_sql("SELECT relname FROM pg_class WHERE relkind = 'r'").scalars())


def sums(engine: Engine) -> dict[str, int]:
    """Accepted and states over everything, dropped days included, as the ledger sees them."""
    totals: dict[str, int] = {"ACCEPTED": 0}
    for line in Ledger(engine).compare().lines:
        totals["ACCEPTED"] += line.accepted
        for state, count in line.states.items():
            totals[state] = totals.get(state, 0) + count
    return totals


@pytest.fixture
def old_day(engine: Engine) -> Engine:
    """An engine on a database that has a day of forty days ago."""
    make_day(engine, noon(_OLD).date())
    return engine


def test_an_old_day_is_dropped_and_its_sums_are_kept(old_day: Engine) -> None:
    """Dropping a day moves promised and states to the ledger, by tenant and hour; young days stay.

    Invariant 1. Fails when the day is dropped without moving its sums, or when one of both sums is left out.
    """
    for state in sorted(TERMINAL):
        put(old_day, state, state, at=noon(_OLD), tenant="ana")
    put(old_day, "SENT", at=noon(_OLD) + timedelta(hours=2), tenant="rui", attempts=1)
    put(old_day, "PENDING")
    before = sums(old_day)

    result = retention(old_day).run_once()

    assert result.dropped_days == [noon(_OLD).date()]
    assert not {name for name in tables(old_day) if name.endswith(f"{noon(_OLD):%Y%m%d}")}
    assert (
        sums(old_day)
        == before
        == {"ACCEPTED": 12, "PENDING": 1, "SENT": 3} | {state: 2 for state in TERMINAL if state != "SENT"}
    )
    with old_day.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT tenant_id, hour, count FROM ledger WHERE status = 'SENT' ORDER BY 1"
        ).all()
    assert [tuple(row) for row in rows] == [("ana", noon(_OLD), 2), ("rui", noon(_OLD) + timedelta(hours=2), 1)]


@pytest.mark.parametrize("state", sorted(OPEN))
def test_a_day_with_a_row_in_flight_stays(old_day: Engine, state: str) -> None:
    """One open row keeps its whole day, whatever the state; fails when any open state is not looked at."""
    put(old_day, "SENT", at=noon(_OLD))
    put(old_day, state, at=noon(_OLD))
    result = retention(old_day).run_once()
    assert (result.dropped_days, result.kept_days) == ([], [noon(_OLD).date()])
    assert sums(old_day)["ACCEPTED"] == 2


def test_a_scheduled_row_keeps_its_day(old_day: Engine) -> None:
    """A delivery accepted long ago for next week is in flight, though nothing will touch it for days."""
    put(old_day, "PENDING", at=noon(_OLD), relay_at="now() + interval '7 days'")
    assert retention(old_day).run_once().kept_days == [noon(_OLD).date()]


def test_a_day_at_the_edge_stays(engine: Engine) -> None:
    """With thirty days of retention, the day thirty days ago is still there and the one before it is not."""
    for ago in (30, 31):
        make_day(engine, noon(ago).date())
        put(engine, "SENT", at=noon(ago))
    assert retention(engine).run_once().dropped_days == [utc_today() - timedelta(days=31)]


def test_a_run_that_died_between_detach_and_drop_is_finished_by_the_next(
    old_day: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run leaves a day that stands alone: it is still accounted for, and the next run ends it.

    Invariant 1, "at all times". Fails when the ledger does not read detached days, or when the next run looks only
    for attached ones.
    """
    put(old_day, "SENT", "FAILED", at=noon(_OLD))
    before = sums(old_day)

    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(partitions, "move_sums", die)
        with pytest.raises(RuntimeError, match="killed"):
            retention(old_day).run_once()
    with old_day.connect() as connection:
        assert {one.day for one in partitions.standing(connection)} == {noon(_OLD).date()}
    assert sums(old_day) == before
    assert Ledger(old_day).compare().is_clean

    assert retention(old_day).run_once().dropped_days == [noon(_OLD).date()]
    assert sums(old_day) == before


def test_a_death_between_sums_and_drop_counts_nothing_twice(
    old_day: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums and drop are one transaction. Fails when the sums are committed before the drop."""
    put(old_day, "SENT", at=noon(_OLD))
    before = sums(old_day)

    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(partitions, "drop", die)
        with pytest.raises(RuntimeError, match="killed"):
            retention(old_day).run_once()
    assert sums(old_day) == before
    retention(old_day).run_once()
    assert sums(old_day) == before


def test_a_replay_between_the_look_and_the_lock_saves_its_day(
    old_day: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FAILED row that an operator replays just before the detachment is in flight again, and its day stays.

    Fails when the look under the lock is left out.
    """
    _, (failed,) = put(old_day, "FAILED", at=noon(_OLD))
    lock = partitions.lock_parents

    def replay_first(connection: Any) -> None:
        Replay(old_day, 6, forget_crashes=lambda _: None, nudge=lambda _: None).by_id([failed])
        lock(connection)

    monkeypatch.setattr(partitions, "lock_parents", replay_first)
    assert retention(old_day).run_once().kept_days == [noon(_OLD).date()]
    assert sums(old_day)["PENDING"] == 1


def test_a_busy_table_costs_a_day_its_turn_and_nobody_a_wait(old_day: Engine) -> None:
    """While a report reads the table, retention gives up within a second and says that the day stays."""
    put(old_day, "SENT", at=noon(_OLD))
    with old_day.connect() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM delivery")
        assert retention(old_day).run_once().kept_days == [noon(_OLD).date()]
    assert retention(old_day).run_once().dropped_days == [noon(_OLD).date()]


def test_old_idempotency_keys_go_and_young_ones_stay(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys past their days are deleted, batch by batch, in one run."""
    monkeypatch.setattr("app.services.retention._PRUNE_BATCH", 3)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO idempotency_key SELECT 't', 'r', n::text, '', gen_random_uuid(), '',"
            " now() - make_interval(days => n) FROM generate_series(1, 15) n"
        )
    assert retention(engine).run_once().idempotency_keys == 9
    with engine.connect() as connection:
        left = connection.exec_driver_sql("SELECT max(key::int) FROM idempotency_key").scalar_one()
    assert left == 6
