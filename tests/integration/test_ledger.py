"""The ledger finds every row that is not accounted for, names it, and stays silent when all is."""

from datetime import timedelta

import pytest
from sqlalchemy.engine import Engine

from app.domain.states import DeliveryState
from app.services.ledger import Ledger
from tests.integration.rows import make_day, noon, put


def execute(engine: Engine, sql: str, *values: object) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(sql, tuple(str(value) for value in values))


def found(engine: Engine, **options: object) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for finding in Ledger(engine).compare(**options).findings:  # type: ignore[arg-type]
        result.setdefault(finding.check, []).append(finding.id)
    return result


def test_everything_accounted_for_is_clean_in_every_state(engine: Engine) -> None:
    """A delivery in each state, with its attempts, makes no finding, and the lines add up by tenant and hour."""
    for state in DeliveryState:
        put(engine, state, attempts=2, tenant="ana")
    put(engine, "SENT", "DELIVERED", attempts=1, tenant="rui")
    put(engine, tenant="rui")  # suppressed: no delivery was promised
    report = Ledger(engine).compare()
    assert report.is_clean
    by_tenant = {line.tenant_id: line for line in report.lines}
    assert by_tenant["ana"].accepted == sum(by_tenant["ana"].states.values()) == len(DeliveryState)
    assert by_tenant["rui"].states == {"SENT": 1, "DELIVERED": 1}


def test_a_lost_delivery_is_found_by_its_notification(engine: Engine) -> None:
    """Invariant 1. A row that vanished shows as a difference of its hour, with the notification's id."""
    kept, _ = put(engine, "SENT", attempts=1)
    lost, (gone, _) = put(engine, "SENT", "SENT")
    execute(engine, "DELETE FROM delivery WHERE id = %s", gone)
    report = Ledger(engine).compare()
    assert not report.is_clean
    assert found(engine) == {"deliveries_missing": [str(lost)]}
    assert [line.difference for line in report.lines if line.difference] == [-1]
    assert str(kept) not in str(report.findings)


def test_a_difference_that_cancels_out_in_the_sum_is_still_found(engine: Engine) -> None:
    """One row too many and one too few in the same hour: the totals agree, the ids do not."""
    less, _ = put(engine, "SENT", promised=2)
    more, _ = put(engine, "SENT", "SENT", promised=1)
    assert sorted(found(engine)["deliveries_missing"]) == sorted([str(less), str(more)])


def test_a_delivery_without_notification_and_one_of_another_tenant_are_found(engine: Engine) -> None:
    """An orphan, and a row that would show one tenant's delivery to another."""
    notification, (orphan,) = put(engine, "PENDING")
    execute(engine, "DELETE FROM notification WHERE id = %s", notification)
    _, (strayed,) = put(engine, "PENDING")
    execute(engine, "UPDATE delivery SET tenant_id = 'other' WHERE id = %s", strayed)
    findings = found(engine)
    assert findings["without_notification"] == [str(orphan)]
    assert findings["other_tenant"] == [str(strayed)]


@pytest.mark.parametrize(
    ("sql", "check"),
    [
        ("UPDATE delivery SET attempts = attempts + 1 WHERE id = %s", "attempts_differ"),
        ("DELETE FROM attempt WHERE delivery_id = %s AND number = 2", "attempts_differ"),
        ("DELETE FROM attempt WHERE delivery_id = %s", "attempts_differ"),
        ("UPDATE attempt SET number = 9 WHERE delivery_id = %s AND number = 3", "attempts_differ"),
        ("DELETE FROM delivery WHERE id = %s", "attempt_without_delivery"),
    ],
)
def test_attempts_that_do_not_match_their_record_are_found(engine: Engine, sql: str, check: str) -> None:
    """Invariant 8's other half: each counted attempt has its row, numbered without a gap."""
    _, (delivery,) = put(engine, "FAILED", attempts=3)
    assert not found(engine)
    execute(engine, sql, delivery)
    assert str(delivery) in found(engine)[check]


def test_a_key_that_answers_with_a_missing_notification_is_found(engine: Engine) -> None:
    """A replayed answer must point to something that exists."""
    there, _ = put(engine, "SENT")
    gone, _ = put(engine, "SENT")
    for key, notification in (("a", there), ("b", gone)):
        execute(engine, "INSERT INTO idempotency_key VALUES ('demo', 'r', %s, '', %s, '')", key, notification)
    execute(engine, "DELETE FROM delivery WHERE notification_id = %s", gone)
    execute(engine, "DELETE FROM notification WHERE id = %s", gone)
    assert found(engine) == {"key_without_notification": [str(gone)]}


def test_sums_of_dropped_days_must_agree_as_well(engine: Engine) -> None:
    """The ledger table itself is held to account."""
    hour = noon(200).isoformat()
    for status, count in (("ACCEPTED", 5), ("SENT", 3), ("FAILED", 1)):
        execute(engine, "INSERT INTO ledger VALUES ('demo', %s, %s, %s)", hour, status, count)
    (line,) = Ledger(engine).compare().lines
    assert (line.accepted, line.difference) == (5, -1)
    assert not Ledger(engine).compare().is_clean
    assert Ledger(engine).compare(since=noon(100)).is_clean


def test_since_and_tenant_narrow_what_is_compared(engine: Engine) -> None:
    """What lies before, or belongs to another tenant, is neither counted nor blamed."""
    make_day(engine, noon(3).date())
    put(engine, "SENT", at=noon(3), promised=2)
    put(engine, "SENT", at=noon(3) + timedelta(hours=2), tenant="ana")
    put(engine, "SENT", tenant="rui", promised=7)
    assert Ledger(engine).compare(tenant_id="ana").is_clean
    assert Ledger(engine).compare(since=noon(3) + timedelta(hours=1), tenant_id="demo").is_clean
    assert len(Ledger(engine).compare(since=noon(3) + timedelta(hours=1)).lines) == 2
    assert len(found(engine)["deliveries_missing"]) == 2


def test_progress_is_told_by_the_day(engine: Engine) -> None:
    """Long work shows how far it is: a call a day, the last one saying that all are done."""
    seen: list[tuple[int, int]] = []
    Ledger(engine).compare(progress=lambda done, days: seen.append((done, days)))
    assert seen[0] == (0, 4)
    assert seen[-1] == (4, 4)


def test_a_report_reads_each_day_in_a_short_transaction_of_its_own(engine: Engine) -> None:
    """Case C07. Between two days the report holds no snapshot, so vacuum is never held back for all of it."""
    ages: list[int] = []

    def look(_done: int, _days: int) -> None:
        with engine.connect() as connection:
            ages.append(
                connection.exec_driver_sql(
                    "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL"
                    " AND pid <> pg_backend_pid() AND datname = current_database()"
                ).scalar_one()
            )

    put(engine, "SENT")
    Ledger(engine).compare(progress=look)
    assert ages
    assert set(ages) == {0}
