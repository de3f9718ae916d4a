"""The months of the audit log: made ahead, dropped whole when their time is over, append-only from the first."""

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from app.db import audit, audit_partitions, partitions
from app.domain.audit import Entry
from app.domain.ids import first_id_at
from app.domain.months import month_after, month_before
from app.services.partitions import PartitionsAhead
from app.services.retention import Retention


def months(engine):
    with engine.connect() as connection:
        return sorted(audit_partitions.attached(connection))


def this_month(engine):
    with engine.connect() as connection:
        return connection.exec_driver_sql(
            "SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date"
        ).scalar_one()


def retention(engine, days=400):
    return Retention(engine, retention_days=30, idempotency_days=7, audit_days=days)


def entry_at(moment):
    identifier = str(first_id_at(moment))
    return Entry("demo", "ana", "ADMIN", "api_key.created", "api_key", "k", at=moment, id=identifier)


@given(st.dates(date(1980, 1, 1), date(9000, 1, 1)))
def test_months_follow_each_other(day):
    """Each ends where the next one begins."""
    month = day.replace(day=1)
    assert month_before(month_after(month)) == month
    assert month_after(month) == (month + timedelta(days=31)).replace(day=1)


def test_three_months_are_ahead_and_stay_so(engine):
    """A month that is missing is made by the next run, and a second run changes nothing."""
    now = this_month(engine)
    assert months(engine)[:2] == [month_before(now), now]
    assert len(months(engine)) == 5
    with engine.begin() as connection:
        audit_partitions.drop(connection, months(engine)[-1])
    for _ in range(2):
        PartitionsAhead(engine, 7).run_once()
        assert len(months(engine)) == 5


def test_a_month_that_was_made_later_is_append_only_too(engine):
    """It gets the triggers, the index and the policy of the table. Fails when only the migration adds them."""
    last = months(engine)[-1]
    with engine.begin() as connection:
        audit_partitions.drop(connection, last)
    PartitionsAhead(engine, 7).run_once()
    moment = datetime.fromisoformat(f"{last}T12:00:00+00:00")
    with engine.begin() as connection:
        audit.add_within(connection, [entry_at(moment)])
    for statement in ("DELETE FROM {0}", "UPDATE {0} SET count = 2", "TRUNCATE {0}"):
        with pytest.raises(DBAPIError, match="only added to"), engine.begin() as connection:
            connection.exec_driver_sql(statement.format(f"audit_entry_{last:%Y%m}"))


def test_months_past_their_retention_are_dropped_whole(engine):
    """A month goes when its last day is past, with its entries, and no younger one."""
    now = this_month(engine)
    old = [month_before(month_before(now))]
    for _ in range(14):
        old.append(month_before(old[-1]))
    with engine.begin() as connection:
        for month in old:
            audit_partitions.make(connection, month)
            audit.add_within(connection, [entry_at(datetime.fromisoformat(f"{month}T12:00:00+00:00"))])
    dropped = retention(engine).run_once().audit_months
    with engine.connect() as connection:
        today = partitions.today(connection)
        left = connection.exec_driver_sql("SELECT min(at)::date, count(*) FROM audit_entry").one()
    assert dropped
    assert all(month_after(month) <= today - timedelta(days=400) for month in dropped)
    assert left[0] >= (today - timedelta(days=400)).replace(day=1)
    assert left[1] == len(old) - len(dropped)
    assert retention(engine).run_once().audit_months == []


def test_a_log_that_is_being_read_keeps_its_months_until_the_next_run(engine):
    """Retention does not queue behind a long report, with every writer behind itself."""
    month = month_before(month_before(this_month(engine)))
    with engine.begin() as connection:
        audit_partitions.make(connection, month)
    with engine.connect() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM audit_entry")
        assert retention(engine, days=1).run_once().audit_months == []
    assert month in retention(engine, days=1).run_once().audit_months


def test_the_same_entry_twice_is_one(engine):
    """A message that is repeated, since its answer was lost, adds nothing."""
    entry = entry_at(datetime.fromisoformat(f"{this_month(engine)}T12:00:00+00:00"))
    for _ in range(2):
        with engine.begin() as connection:
            audit.add_within(connection, [entry, entry])
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM audit_entry").scalar_one() == 1
