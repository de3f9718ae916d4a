"""What the relay's statements read: the partial indexes and nothing else, whatever the tables hold."""

from datetime import timedelta
from typing import Any

import pytest

from app.db import outbox
from app.db.session import make_engine
from app.domain.ids import day_floor
from tests.integration.rows import make_day, utc_today
from tests.pipeline_parts import add_due, sql

pytestmark = pytest.mark.timeout(120)


def scans(node: dict[str, Any]) -> set[tuple[str, str]]:
    """Return (kind of node, index) of everything that reads a table in a plan."""
    here = set()
    if "Relation Name" in node and node["Node Type"] != "ModifyTable":
        here = {(node["Node Type"], node.get("Index Name", "-").split("_", 2)[-1])}
    return here.union(*(scans(child) for child in node.get("Plans", [])))


def kinds(node: dict[str, Any]) -> set[str]:
    """Return the kinds of all nodes of a plan."""
    return {node["Node Type"]}.union(*(kinds(child) for child in node.get("Plans", [])))


def plan(url: str, statement: str, **values: Any) -> dict[str, Any]:
    """Return the plan of a statement as the relay's own connections get it."""
    today = utc_today()
    days = {"low": str(day_floor(today - timedelta(days=1))), "high": str(day_floor(today + timedelta(days=2)))}
    engine = make_engine(url, application_name="plans", options=outbox.PLANNER_OPTIONS)
    try:
        with engine.connect() as connection:
            found = connection.exec_driver_sql("EXPLAIN (FORMAT JSON) " + statement, {**days, **values})
            return found.scalar_one()[0]["Plan"]
    finally:
        engine.dispose()


DUE = ("Index Scan", "priority_channel_relay_at_idx")
VALUES: dict[str, Any] = {"priority": 2, "channel": "SMS", "limit": 2000}


@pytest.fixture
def many_days(engine):
    """Two weeks of partitions; today's one is full of rows that the statistics do not know."""
    for back in range(2, 14):
        make_day(engine, utc_today() - timedelta(days=back))
    sql(engine, "ANALYZE delivery")
    ids = add_due(engine, 4000)
    sql(
        engine,
        "UPDATE delivery SET status = 'SENT', sent_at = now() WHERE id = ANY(%(ids)s::uuid[])",
        ids=ids[:3000],
    )


@pytest.mark.parametrize(
    "statement",
    [outbox.CLAIM_RECENT, outbox.CLAIM_ALL, outbox.PROBE_RECENT, outbox.PROBE_ALL],
    ids=["claim", "claim-all", "probe", "probe-all"],
)
@pytest.mark.usefixtures("many_days")
def test_the_relay_reads_only_the_partial_index_in_its_order(database_url, statement):
    """Case C09. No sort, no table scan and no other index, even where statistics are old.

    Fails without PLANNER_OPTIONS: partitions that looked empty are sorted whole to find one row.
    """
    found = plan(database_url, statement, **VALUES)
    assert scans(found) == {DUE}
    assert kinds(found) & {"Sort", "Incremental Sort", "Seq Scan", "Bitmap Heap Scan"} == set()


@pytest.mark.usefixtures("many_days")
def test_the_fast_tick_names_three_days(database_url):
    """The tick's plan holds yesterday to tomorrow, however many days the table has."""

    def count(node: dict[str, Any]) -> int:
        return ("Relation Name" in node) + sum(count(child) for child in node.get("Plans", []))

    assert count(plan(database_url, outbox.CLAIM_RECENT, **VALUES)) <= 3
    assert count(plan(database_url, outbox.CLAIM_ALL, **VALUES)) > 12


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (outbox.FIND_LOST, {"priority": 2, "before": 10, "limit": 1000}),
        (outbox.HAS_QUEUED, {"priority": 2}),
        (outbox.COUNT_QUEUED, {"priority": 2}),
    ],
    ids=["lost", "any", "count"],
)
@pytest.mark.usefixtures("many_days")
def test_looks_into_the_pipe_read_the_index_of_queued_rows(database_url, statement, values):
    """Rescue, markers and the bound of the pipe never read rows that are done."""
    used = {index for _, index in scans(plan(database_url, statement, **values))}
    assert used == {"priority_published_seq_channel_idx"}
