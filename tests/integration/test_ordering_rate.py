"""What order costs: the same deliveries through one worker and relay, unordered and ordered, in one run."""

import os
import sys
from time import monotonic

import pytest

from app.domain.ids import mint
from tests import delivery_rows as rows
from tests.carried import Carried
from tests.sealed import sealed_content
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider

ROWS = int(os.environ.get("ORDERING_RATE_ROWS", "200"))

_NOTIFICATION = """
INSERT INTO notification (id, tenant_id, user_id, category, priority, sealed, delivery_count)
VALUES (%s, 'demo', %s, 'test', 2, %s, 1)
"""
_DELIVERY = """
INSERT INTO delivery (id, notification_id, tenant_id, user_id, channel, priority, order_at)
VALUES (%s, %s, 'demo', %s, 'SMS', 2, CASE WHEN %s THEN now() + %s * interval '1 us' END)
"""


def fill(engine, in_a_row, *, is_ordered):
    """Store ROWS deliveries, `in_a_row` for each user."""
    ids = []
    with engine.begin() as connection:
        for number in range(ROWS):
            delivery, notification = map(str, mint(2))
            user = f"u{number // in_a_row}"
            sealed = sealed_content(notification, "t", "b", {"SMS": "+447700900000"})
            connection.exec_driver_sql(_NOTIFICATION, (notification, user, sealed))
            connection.exec_driver_sql(_DELIVERY, (delivery, notification, user, is_ordered, number))
            ids.append(delivery)
    return ids


@pytest.mark.parametrize("in_a_row", [1, 5, 25])
def test_rates_with_and_without_order(run_worker, engine, database_url, in_a_row, capsys):
    """Ordered deliveries cost more; what is asserted is only that it stays within reason."""
    rates = []
    for is_ordered in (False, True):
        ids = fill(engine, in_a_row, is_ordered=is_ordered)
        with run_worker(ScriptedProvider(), sms_rate_per_second=100_000) as running:
            started = monotonic()
            with Carried(running, database_url):
                eventually(lambda ids=ids: rows.statuses(engine, ids) == {"SENT": ROWS}, seconds=50)
            rates.append(ROWS / (monotonic() - started))
    plain, kept = rates
    with capsys.disabled():
        sys.stdout.write(f"\n{in_a_row} in a row: {plain:.0f}/s, ordered {kept:.0f}/s, {kept / plain:.2f} of it\n")
    assert kept > plain / 50
