"""Rescue of SENDING, the resolver, the expiry sweep and receipts, on real PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.kinds import Channel, Priority
from app.domain.states import DeliveryState
from app.services.expire import Expire
from app.services.receipt import Receipt, TakeReceipt
from app.services.rescue_sending import RescueSending
from app.services.resolve import Resolve, resend_pairs
from app.settings import Settings
from tests import delivery_rows as rows

OVER = "sql:now() - interval '1 s'"
ALL = [(channel, priority) for channel in Channel for priority in Priority]


def rescue(engine):
    return RescueSending(engine, 60.0, 900.0, 120.0).run_once()


def sending(engine, count=1, **columns):
    defaults = {"lease_token": 3, "lease_until": OVER, "provider": "p"}
    return rows.add(engine, count, status="SENDING", **(defaults | columns))


@pytest.mark.parametrize(("priority", "window"), [(Priority.HIGH, 60), (Priority.LOW, 900)])
def test_a_row_of_a_dead_worker_becomes_unknown_and_is_counted(engine, priority, window):
    """Case A05. Fails under `rescue SENDING to PENDING`: what may have been accepted would be sent again."""
    ids = sending(engine, priority=priority)
    assert rescue(engine) == 1
    row = rows.row(engine, ids[0])
    assert (row["status"], row["attempts"], row["uncertain"]) == ("UNKNOWN", 1, True)
    assert window - 2 < (row["next_attempt_at"] - row["updated_at"]).total_seconds() <= window
    [attempt] = rows.attempts(engine, ids[0])
    assert (attempt["number"], attempt["outcome"], attempt["provider"]) == (1, "worker_lost", "p")


def test_a_row_whose_lease_runs_is_left_alone(engine):
    """The lease is longer than any call."""
    sending(engine, lease_until="sql:now() + interval '1 min'")
    assert rescue(engine) == 0


@pytest.mark.parametrize(("kind", "status"), [("positive", "DELIVERED"), ("negative", "FAILED")])
def test_rescue_folds_in_a_receipt_that_came_during_the_call(engine, kind, status):
    """Fails under `early receipt dropped`."""
    ids = sending(engine, early_receipt=f'{{"kind": "{kind}", "code": "30005"}}')
    rescue(engine)
    row = rows.row(engine, ids[0])
    assert (row["status"], row["attempts"], row["early_receipt"]) == (status, 1, None)


def test_two_rescues_at_once_count_a_call_once(engine):
    """Any number of upkeep workers may run; rows are locked with SKIP LOCKED and looked at again."""
    ids = sending(engine, 50)
    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(lambda _: rescue(engine), range(2))) == 50
    assert {rows.row(engine, id_)["attempts"] for id_ in ids} == {1}


def unknown(engine, count=1, **columns):
    defaults = {"next_attempt_at": OVER, "uncertain": True, "attempts": 1}
    return rows.add(engine, count, status="UNKNOWN", **(defaults | columns))


def test_the_resolver_sends_again_only_under_resend(engine):
    """The policy is one of channel and priority."""
    held = unknown(engine, channel=Channel.SMS)
    sent = unknown(engine, channel=Channel.EMAIL)
    pairs = resend_pairs(Settings(_env_file=None))
    assert Resolve(engine, pairs).run_once() == 2
    assert rows.row(engine, held[0])["error_code"] == "uncertain"
    assert rows.row(engine, held[0])["status"] == "FAILED"
    row = rows.row(engine, sent[0])
    assert (row["status"], row["uncertain"], row["attempts"]) == ("PENDING", True, 1)
    assert row["relay_at"] <= row["updated_at"]


@pytest.mark.parametrize(
    "columns",
    [
        {"attempts": 6},
        {"expires_at": OVER},
        {"cancel_requested_at": "sql:now()"},
    ],
)
def test_the_resolver_ends_uncertain_what_may_not_be_sent_again(engine, columns):
    """EXPIRED or CANCELLED would claim that nothing was sent."""
    ids = unknown(engine, **columns)
    Resolve(engine, ALL).run_once()
    row = rows.row(engine, ids[0])
    assert (row["status"], row["error_code"]) == ("FAILED", "uncertain")


def test_the_resolver_waits_for_the_window(engine):
    """Until then a receipt or a late answer may still tell."""
    unknown(engine, next_attempt_at="sql:now() + interval '1 s'")
    assert Resolve(engine, ALL).run_once() == 0


def test_the_sweep_expires_only_what_has_not_begun(engine):
    """A row that is SENDING or UNKNOWN past its deadline may have been sent."""
    waiting = rows.add(engine, 3, status="PENDING", expires_at=OVER) + rows.add(engine, 3, expires_at=OVER)
    kept = [
        *sending(engine, expires_at=OVER, lease_until="sql:now() + interval '1 min'"),
        *unknown(engine, expires_at=OVER),
        *rows.add(engine, 1, expires_at="sql:now() + interval '1 min'"),
    ]
    assert Expire(engine).run_once() == 6
    assert rows.statuses(engine, waiting) == {"EXPIRED": 6}
    assert "EXPIRED" not in rows.statuses(engine, kept)


def test_the_sweep_passes_by_a_row_that_is_locked(engine):
    """A claim under way decides; the sweep comes again."""
    ids = rows.add(engine, 2, expires_at=OVER)
    with engine.begin() as other:
        other.exec_driver_sql("SELECT 1 FROM delivery WHERE id = %(id)s FOR UPDATE", {"id": ids[0]})
        assert Expire(engine).run_once() == 1


def take(engine, id_, *, is_positive, message_id="m1"):
    return TakeReceipt(engine).take(Receipt(id_, is_positive, message_id, "30005", "unknown number"))


POSITIVE = [
    ("PENDING", {"attempts": 1}, "DELIVERED"),
    ("QUEUED", {"attempts": 1}, "DELIVERED"),
    ("QUEUED", {"attempts": 0}, None),
    ("UNKNOWN", {"uncertain": True}, "DELIVERED"),
    ("SENT", {"sent_at": "sql:now()"}, "DELIVERED"),
    ("DELIVERED", {"delivered_at": "sql:now()"}, None),
    ("FAILED", {"error_code": "uncertain", "uncertain": True}, "DELIVERED"),
    ("FAILED", {"error_code": "gone"}, None),
    ("CANCELLED", {"uncertain": True}, "DELIVERED"),
    ("CANCELLED", {}, None),
    ("EXPIRED", {"uncertain": True}, "DELIVERED"),
    ("EXPIRED", {"attempts": 1}, None),
]


@pytest.mark.parametrize(("status", "columns", "after"), POSITIVE)
def test_a_positive_receipt_moves_what_it_may(engine, status, columns, after):
    """All rows of the transition table; a repeated receipt changes nothing more."""
    ids = rows.add(engine, 1, status=status, attempts_allowed=6, **columns)
    assert take(engine, ids[0], is_positive=True) == (DeliveryState(after) if after else None)
    assert rows.row(engine, ids[0])["status"] == (after or status)
    assert take(engine, ids[0], is_positive=True) is None or not after


NEGATIVE = [
    ("SENT", {"sent_at": "sql:now()", "provider_message_id": "m1"}, "FAILED"),
    ("SENT", {"sent_at": "sql:now()", "provider_message_id": "another"}, None),
    ("UNKNOWN", {"uncertain": True}, "FAILED"),
    ("UNKNOWN", {"uncertain": True, "provider_message_id": "m1"}, None),
    ("DELIVERED", {"delivered_at": "sql:now()"}, None),
    ("PENDING", {"attempts": 1}, None),
    ("CANCELLED", {"uncertain": True}, None),
]


@pytest.mark.parametrize(("status", "columns", "after"), NEGATIVE)
def test_a_negative_receipt_must_be_about_the_very_call(engine, status, columns, after):
    """Of a SENT row it names the message that was taken; of a row with a lost answer, no earlier one."""
    ids = rows.add(engine, 1, status=status, attempts_allowed=6, **columns)
    assert take(engine, ids[0], is_positive=False) == (DeliveryState(after) if after else None)
    row = rows.row(engine, ids[0])
    assert row["status"] == (after or status)
    if after:
        assert (row["error_code"], row["last_error"]) == ("30005", "unknown number")


@pytest.mark.parametrize("is_positive", [True, False])
def test_a_receipt_during_the_call_waits_in_the_row(engine, is_positive):
    """The worker has still to count its call. Fails when the receipt ends the row at once, or is dropped."""
    ids = sending(engine, lease_until="sql:now() + interval '1 min'")
    assert take(engine, ids[0], is_positive=is_positive) is DeliveryState.SENDING
    row = rows.row(engine, ids[0])
    assert row["status"] == "SENDING"
    assert row["early_receipt"]["kind"] == ("positive" if is_positive else "negative")


def test_a_positive_receipt_wins_over_an_early_negative_one(engine):
    """And a negative one does not replace a positive one."""
    ids = sending(engine, lease_until="sql:now() + interval '1 min'")
    take(engine, ids[0], is_positive=False)
    take(engine, ids[0], is_positive=True)
    assert take(engine, ids[0], is_positive=False) is None
    assert rows.row(engine, ids[0])["early_receipt"]["kind"] == "positive"
