"""The record, on real PostgreSQL: what an outcome does to its row, and to no other."""

import time

import pytest

from app.db import deliveries, recovery
from app.db.deliveries import Recordable
from app.db.session import make_engine
from tests import delivery_rows as rows

EARLY_POSITIVE = '{"kind": "positive"}'
EARLY_NEGATIVE = '{"kind": "negative", "message_id": "m1", "code": "30005", "detail": "unknown number"}'


@pytest.fixture
def writes(database_url):
    engine = make_engine(
        database_url, application_name="writes", pool_size=4, autocommit=True, options=deliveries.WRITE_OPTIONS
    )
    yield engine
    engine.dispose()


def sending(engine, count=1, **columns):
    return rows.add(
        engine,
        count,
        status="SENDING",
        lease_token=columns.pop("lease_token", 3),
        lease_until=columns.pop("lease_until", "sql:now() + interval '1 min'"),
        provider="p",
        **columns,
    )


def outcome(id_, kind, **fields):
    return Recordable(id_, fields.pop("token", 3), kind, "p", started=time.monotonic(), duration_ms=7, **fields)


def record(engine, *batch):
    with engine.connect() as connection:
        return deliveries.record(connection, batch, time.monotonic())


def test_every_outcome_lands_in_its_state_with_one_attempt(engine, writes):
    """One statement for the whole batch; each row keeps the promises of its CHECK constraints."""
    ids = sending(engine, 7)
    statuses = record(
        writes,
        outcome(ids[0], "accepted", message_id="m1"),
        outcome(ids[1], "accepted", message_id="m2", is_final=True),
        outcome(ids[2], "retry", code="503", detail="busy", delay_seconds=2.0, grace_seconds=10.0),
        outcome(ids[3], "retry", code="503", detail="busy"),
        outcome(ids[4], "rejected", code="gone", detail="no such number"),
        outcome(ids[5], "unknown", code="timeout", detail="no answer", delay_seconds=60.0),
        outcome(ids[6], "throttled", code="429", detail="slow", delay_seconds=1.0, extra=1),
    )
    assert [statuses[id_] for id_ in ids] == [
        "SENT",
        "DELIVERED",
        "PENDING",
        "FAILED",
        "FAILED",
        "UNKNOWN",
        "PENDING",
    ]
    found = [rows.row(engine, id_) for id_ in ids]
    assert {row["attempts"] for row in found} == {1}
    assert found[0]["provider_message_id"] == "m1"
    assert (found[2]["relay_at"] - found[2]["next_attempt_at"]).total_seconds() == 10
    assert [row["uncertain"] for row in found] == [False] * 5 + [True, False]
    assert [row["attempts_allowed"] for row in found] == [6] * 6 + [7]
    assert [rows.attempts(engine, id_)[0]["outcome"] for id_ in ids[:3]] == ["accepted", "accepted", "retry"]
    assert all(row["lease_until"] is None for row in found)


@pytest.mark.parametrize("kind", ["accepted", "retry", "rejected", "unknown"])
def test_a_record_under_another_token_changes_nothing(engine, writes, kind):
    """Fails under `record or defer without CAS`: a worker that lost its lease would overwrite the next call."""
    ids = sending(engine, lease_token=4)
    assert record(writes, outcome(ids[0], kind, token=3, code="x", delay_seconds=1.0)) == {}
    assert rows.row(engine, ids[0])["status"] == "SENDING"
    assert rows.attempts(engine, ids[0]) == []


@pytest.mark.parametrize("status", ["PENDING", "CANCELLED", "SENT", "DELIVERED", "FAILED"])
def test_a_record_of_a_row_that_moved_on_changes_nothing(engine, writes, status):
    """The same token is not enough: the row must still be SENDING, or UNKNOWN. Fails without the state's CAS."""
    ids = rows.add(
        engine, 1, status=status, lease_token=3, sent_at="sql:now()", delivered_at="sql:now()", error_code="x"
    )
    assert record(writes, outcome(ids[0], "retry", code="503", delay_seconds=1.0)) == {}
    assert rows.row(engine, ids[0])["status"] == status


def test_the_attempt_is_counted_by_the_record_and_not_by_the_claim(engine, writes):
    """Fails under `attempt counted at claim`: a claim given back would have cost an attempt."""
    ids = rows.add(engine)
    with writes.connect() as connection:
        [(_, token, _, _)] = deliveries.claim(connection, ids, [0], "p", 60.0)
        assert rows.row(engine, ids[0])["attempts"] == 0
        assert deliveries.give_back(connection, ids, [token], 0.0) == [(ids[0], "PENDING")]
    assert rows.row(engine, ids[0])["attempts"] == 0
    assert rows.attempts(engine, ids[0]) == []


def rescue(engine):
    with engine.begin() as connection:
        return recovery.rescue_sending(connection, 100, 60.0, 900.0, 120.0)


@pytest.mark.parametrize(
    ("kind", "fields", "status"),
    [
        ("accepted", {"message_id": "m1"}, "SENT"),
        ("retry", {"code": "503", "delay_seconds": 2.0}, "PENDING"),
        ("retry", {"code": "503"}, "FAILED"),
        ("rejected", {"code": "gone"}, "FAILED"),
    ],
)
def test_a_late_answer_decides_an_unknown_row_and_its_call_is_counted_once(engine, writes, kind, fields, status):
    """Rescue has already counted the call; the late answer overwrites its attempt row instead of adding one."""
    ids = sending(engine, lease_until="sql:now() - interval '1 s'")
    assert rescue(engine) == [(ids[0], "UNKNOWN")]
    assert record(writes, outcome(ids[0], kind, **fields)) == {ids[0]: status}
    row = rows.row(engine, ids[0])
    assert (row["status"], row["attempts"], row["uncertain"]) == (status, 1, True)
    assert [(entry["number"], entry["outcome"]) for entry in rows.attempts(engine, ids[0])] == [(1, kind)]


def test_recording_the_same_ambiguous_outcome_twice_changes_nothing(engine, writes):
    """A record whose commit was not heard is repeated; neither its window nor its count may move again."""
    ids = sending(engine)
    record(writes, outcome(ids[0], "unknown", code="timeout", delay_seconds=60.0))
    before = rows.row(engine, ids[0])
    assert record(writes, outcome(ids[0], "unknown", code="timeout", delay_seconds=60.0)) == {}
    assert rows.row(engine, ids[0]) == before


@pytest.mark.parametrize(
    ("kind", "fields", "early", "status"),
    [
        ("accepted", {"message_id": "m1"}, EARLY_POSITIVE, "DELIVERED"),
        ("unknown", {"code": "timeout", "delay_seconds": 60.0}, EARLY_POSITIVE, "DELIVERED"),
        ("retry", {"code": "503", "delay_seconds": 2.0}, EARLY_POSITIVE, "DELIVERED"),
        ("rejected", {"code": "x"}, EARLY_POSITIVE, "DELIVERED"),
        ("accepted", {"message_id": "m1"}, EARLY_NEGATIVE, "FAILED"),
        ("accepted", {"message_id": "another"}, EARLY_NEGATIVE, "SENT"),
        ("unknown", {"code": "timeout", "delay_seconds": 60.0}, EARLY_NEGATIVE, "FAILED"),
        ("retry", {"code": "503", "delay_seconds": 2.0}, EARLY_NEGATIVE, "PENDING"),
    ],
)
def test_a_receipt_that_came_during_the_call_is_folded_in(engine, writes, kind, fields, early, status):
    """Fails under `early receipt dropped`."""
    ids = sending(engine, early_receipt=early)
    assert record(writes, outcome(ids[0], kind, **fields)) == {ids[0]: status}
    row = rows.row(engine, ids[0])
    assert row["early_receipt"] is None
    assert row["attempts"] == 1
    if status == "FAILED":
        assert row["error_code"] == "30005"


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"cancel_requested_at": "sql:now()"}, "CANCELLED"),
        ({"expires_at": "sql:now() - interval '1 s'"}, "EXPIRED"),
    ],
)
def test_a_retry_of_a_cancelled_or_expired_row_ends_it(engine, writes, columns, status):
    """A cancel during the call is kept in the row and decides where the call did not go through."""
    ids = sending(engine, 2, **columns)
    assert record(writes, outcome(ids[0], "retry", code="503", delay_seconds=2.0)) == {ids[0]: status}
    with writes.connect() as connection:
        assert deliveries.give_back(connection, [ids[1]], [3], 0.0) == [(ids[1], status)]
    assert [rows.row(engine, id_)["attempts"] for id_ in ids] == [1, 0]


def test_a_cancelled_row_that_was_accepted_says_so(engine, writes):
    """The truth about the call wins over the wish to call it off."""
    ids = sending(engine, cancel_requested_at="sql:now()")
    assert record(writes, outcome(ids[0], "accepted", message_id="m1")) == {ids[0]: "SENT"}


@pytest.mark.parametrize(("status", "seen"), [("SENDING", 0), ("SENT", 0), ("QUEUED", 1), ("CANCELLED", 0)])
def test_a_deferral_touches_only_rows_as_the_worker_saw_them(engine, writes, status, seen):
    """Fails under `record or defer without CAS`."""
    more = {"sent_at": "sql:now()", "lease_token": 1}
    if status == "SENDING":
        more["lease_until"] = "sql:now() + interval '1 min'"
    ids = rows.add(engine, 1, status=status, **more)
    with writes.connect() as connection:
        assert deliveries.defer(connection, ids, [seen], 30.0) == 0
    assert rows.row(engine, ids[0])["status"] == status


def test_a_deferral_only_lengthens_the_wait_and_keeps_the_relay_behind_it(engine, writes):
    """`next_attempt_at` only grows; `relay_at` is never before it, or the message would come too early."""
    ids = rows.add(engine, 20, next_attempt_at="sql:now() + interval '1 hour'") + rows.add(engine, 20)
    with writes.connect() as connection:
        assert deliveries.defer(connection, ids, [0] * 40, 30.0, 0.5) == 40
    found = [rows.row(engine, id_) for id_ in ids]
    waits = [(row["next_attempt_at"] - row["updated_at"]).total_seconds() for row in found]
    assert all(wait > 3500 for wait in waits[:20])
    assert all(30 <= wait <= 45 for wait in waits[20:])
    assert len({round(wait, 3) for wait in waits[20:]}) > 5
    assert all(row["relay_at"] == row["next_attempt_at"] for row in found)
    assert {row["attempts"] for row in found} == {0}


@pytest.mark.parametrize("text", ['a"b', "a\\b", "{a,b}", "NULL", "'; --", "é☃", "", " ", "\n\t"])
def test_whatever_a_provider_says_is_stored_as_it_was(engine, writes, text):
    """Texts travel as array literals of our own making."""
    ids = sending(engine, 2)
    record(
        writes,
        outcome(ids[0], "retry", code=text, detail=text, message_id=text, delay_seconds=1.0),
        outcome(ids[1], "accepted"),
    )
    row = rows.row(engine, ids[0])
    assert (row["error_code"], row["last_error"], row["provider_message_id"]) == (text, text, text)
