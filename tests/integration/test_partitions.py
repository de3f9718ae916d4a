"""Partitions by day: made ahead, by many at once, without keeping readers out; and one id reads one of them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from app.db import partitions
from app.domain.ids import siblings
from app.services.partitions import PartitionsAhead
from tests.integration.rows import make_day, noon, put, utc_today


def days_of(engine: Engine, table: str) -> list[str]:
    with engine.connect() as connection:
        return sorted(str(one.day) for one in partitions.attached(connection) if one.table == table)


def test_a_week_ahead_and_yesterday_have_their_partitions_in_all_three_tables(engine: Engine) -> None:
    """Every table gets yesterday to seven days from now; a second run has nothing to do."""
    assert PartitionsAhead(engine, 7).run_once() > 0
    expected = [str(utc_today() + timedelta(days=offset)) for offset in range(-1, 8)]
    for table in partitions.TABLES:
        assert days_of(engine, table) == expected
    assert PartitionsAhead(engine, 7).run_once() == 0


def test_many_makers_at_once_make_each_partition_once(engine: Engine) -> None:
    """Eight processes that start together take turns: none fails, and their counts add up to what was missing."""
    gate = threading.Barrier(8)

    def make() -> int:
        gate.wait()
        return PartitionsAhead(engine, 20).run_once()

    with ThreadPoolExecutor(8) as threads:
        counts = [future.result() for future in [threads.submit(make) for _ in range(8)]]
    made_by_migration = 4
    assert sum(counts) == 3 * (22 - made_by_migration)


def test_a_partition_is_made_while_a_reader_holds_the_table(engine: Engine) -> None:
    """A report that reads the table does not hold up tomorrow's partition.

    Fails when a partition is made by CREATE TABLE … PARTITION OF, which waits for every reader of the parent.
    """
    with engine.connect() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM delivery")
        assert PartitionsAhead(engine, 4).run_once() == 6


def test_making_partitions_gives_up_on_a_lock_in_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table locked by someone costs this run an error after the lock timeout, and nothing is half made."""
    monkeypatch.setattr("app.services.partitions._LOCK_SECONDS", 0.2)
    with engine.connect() as holder:
        holder.exec_driver_sql("LOCK TABLE delivery IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(OperationalError, match="lock timeout"):
            PartitionsAhead(engine, 4).run_once()
    assert len(days_of(engine, "notification")) == 4


def test_a_new_partition_has_the_indexes_and_checks_of_its_table(engine: Engine) -> None:
    """What the protocol leans on holds on a day made by upkeep as on one made by the migration."""
    day = utc_today() + timedelta(days=3)
    make_day(engine, day)
    with engine.connect() as connection:
        for kind in ("pg_indexes WHERE tablename", "pg_constraint WHERE conrelid::regclass::text"):
            count = f"SELECT count(*) FROM {kind} = %s"
            both = [
                connection.exec_driver_sql(count, (f"delivery_{one:%Y%m%d}",)).scalar_one()
                for one in (utc_today(), day)
            ]
            assert both[0] == both[1] > 5


def plan(engine: Engine, sql: str, values: dict[str, object]) -> str:
    with engine.connect() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        return "\n".join(connection.exec_driver_sql(f"EXPLAIN {sql}", values).scalars())


def partitions_in(text: str) -> set[str]:
    return {
        word
        for line in text.splitlines()
        if " on " in line
        for word in line.split()
        if "_20" in word and "pkey" not in word and "idx" not in word
    }


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM notification WHERE id = %(notification)s::uuid",
        "SELECT * FROM delivery WHERE id = %(delivery)s::uuid",
        "SELECT * FROM delivery WHERE id BETWEEN %(low)s::uuid AND %(high)s::uuid",
        "SELECT * FROM attempt WHERE delivery_id = %(delivery)s::uuid",
    ],
)
def test_a_look_up_by_id_reads_one_partition(engine: Engine, sql: str) -> None:
    """With thirty days of partitions, the plan of each look-up by id names exactly one, by its primary key."""
    for ago in range(2, 30):
        make_day(engine, utc_today() - timedelta(days=ago))
    notification, deliveries = put(engine, "PENDING", at=noon(7))
    low, high = siblings(notification)
    text = plan(
        engine,
        sql,
        {"notification": str(notification), "delivery": str(deliveries[0]), "low": str(low), "high": str(high)},
    )
    assert len(partitions_in(text)) == 1, text
    assert "pkey" in text
    assert f"{noon(7):%Y%m%d}" in text


def test_an_id_without_its_partition_is_refused_and_not_misplaced(engine: Engine) -> None:
    """There is no default partition that would fill in silence: an id of a far day is an error."""
    far = UUID(int=0xFFFF << 112 | 7 << 76 | 0b10 << 62)
    with engine.connect() as connection, pytest.raises(Exception, match="no partition of relation"):
        connection.exec_driver_sql(
            "INSERT INTO notification (id, tenant_id, user_id, category, priority, delivery_count)"
            " VALUES (%s, 't', 'u', 'c', 0, 1)",
            (str(far),),
        )
