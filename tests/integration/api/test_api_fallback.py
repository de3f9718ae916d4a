"""Chains of fallbacks: the next channel when one failed or took too long, exactly once, by a true ledger."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.engine import Engine, Row

from app.db import fallback
from app.domain.ids import siblings
from app.domain.kinds import Channel, Priority
from app.services.accept.submission import Fallback, Submission
from app.services.advance import Advance
from app.services.ledger import Ledger
from app.wiring import api_services
from providers.outcome import Rejected
from tests.integration.api.conftest import Api, error_of, sms
from tests.pipeline_parts import in_thread
from tests.user_rows import add_device, add_user
from tests.waiting import eventually, never
from tests.worker_harness import ScriptedProvider, run_worker

__all__ = ["run_worker"]

Rows = Callable[..., list[Row[Any]]]

TO = {"PUSH": "sandbox:ok", "SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com"}
ENDS = {
    "FAILED": "status = 'FAILED', error_code = 'rejected'",
    "SENT": "status = 'SENT', sent_at = now()",
    "DELIVERED": "status = 'DELIVERED', delivered_at = now()",
    "EXPIRED": "status = 'EXPIRED'",
    "withheld": "status = 'CANCELLED', error_code = 'preference'",
}


def chain(*channels: str, after: int | None = None, **chosen: Any) -> dict[str, Any]:
    """A request for a chain."""
    value: Any = list(channels) if after is None else {"channels": list(channels), "after_seconds": after}
    return sms(channels=[], fallback=value, recipients=TO) | chosen


def advance(engine: Engine) -> tuple[int, list[Priority]]:
    """Run the sweep; return how many steps it made, and what it nudged."""
    nudged: list[Priority] = []
    return Advance(engine, 6, nudged.append).run_once(), nudged


def end(rows: Rows, how: str, channel: str) -> None:
    rows(f"UPDATE delivery SET {ENDS[how]} WHERE channel = '{channel}'")


def steps(api: Api, identifier: str) -> list[tuple[str, str, str | None]]:
    found = api.read(identifier).get_json()["fallback"]
    assert [each["step"] for each in found] == list(range(len(found)))
    return [(each["channel"], each["status"], each["reason"]) for each in found]


def assert_ledger_is_clean(engine: Engine) -> None:
    report = Ledger(engine).compare()
    assert report.is_clean, report


def test_only_the_first_channel_is_made_and_the_chain_is_shown(api: Api, rows: Rows, engine: Engine) -> None:
    """The list form; what waits promises no delivery yet."""
    body = api.post(chain("PUSH", "SMS", "EMAIL")).get_json()
    assert [(each["channel"], each["status"]) for each in body["deliveries"]] == [("PUSH", "PENDING")]
    assert steps(api, body["id"]) == [
        ("PUSH", "MADE", "first"),
        ("SMS", "WAITING", None),
        ("EMAIL", "WAITING", None),
    ]
    assert rows("SELECT delivery_count FROM notification")[0].delivery_count == 1
    assert advance(engine) == (0, [])
    assert_ledger_is_clean(engine)


def test_a_failure_makes_the_next_and_only_the_next(api: Api, rows: Rows, engine: Engine) -> None:
    """Its delivery is due at once, lies beside the first, and is promised in the same statement."""
    identifier = api.post(chain("PUSH", "SMS", "EMAIL", expires_in=600)).get_json()["id"]
    end(rows, "FAILED", "PUSH")
    assert api.read(identifier).get_json()["status"] == "IN_PROGRESS"
    assert advance(engine) == (1, [Priority.NORMAL])
    assert advance(engine) == (0, [])
    push, second = rows("SELECT *, relay_at <= now() AS due FROM delivery ORDER BY id")
    assert (second.channel, second.status, second.due) == ("SMS", "PENDING", True)
    assert (second.created_at, second.expires_at) == (push.created_at, push.expires_at)
    low, high = siblings(UUID(identifier))
    assert low <= second.id <= high
    assert steps(api, identifier)[1:] == [("SMS", "MADE", "failed"), ("EMAIL", "WAITING", None)]
    assert_ledger_is_clean(engine)
    end(rows, "FAILED", "SMS")
    assert advance(engine)[0] == 1
    end(rows, "FAILED", "EMAIL")
    assert advance(engine)[0] == 0
    assert api.read(identifier).get_json()["status"] == "FAILED"
    assert_ledger_is_clean(engine)


@pytest.mark.parametrize(
    ("how", "reason"), [("DELIVERED", "delivered"), ("EXPIRED", "expired"), ("withheld", None), ("SENT", None)]
)
def test_what_ends_a_chain_and_what_does_not(
    api: Api, rows: Rows, engine: Engine, how: str, reason: str | None
) -> None:
    """Delivered or expired: nothing more. Withheld by a rule of its channel: go on. Sent: it may still fail."""
    identifier = api.post(chain("PUSH", "SMS", "EMAIL")).get_json()["id"]
    end(rows, how, "PUSH")
    assert advance(engine)[0] == (1 if how == "withheld" else 0)
    if reason is not None:
        assert steps(api, identifier)[1:] == [("SMS", "DROPPED", reason), ("EMAIL", "DROPPED", reason)]
    if how == "SENT":
        assert steps(api, identifier)[1][1] == "WAITING"
        end(rows, "FAILED", "PUSH")
        assert advance(engine)[0] == 1


def test_a_chain_goes_on_when_it_is_not_delivered_in_time(api: Api, rows: Rows, engine: Engine) -> None:
    """Sent is not delivered. The clock of the third step starts when the second is made."""
    identifier = api.post(chain("PUSH", "SMS", "EMAIL", after=30)).get_json()["id"]
    end(rows, "SENT", "PUSH")
    assert advance(engine)[0] == 0
    rows("UPDATE fallback_step SET check_at = check_at - interval '30 seconds'")
    assert advance(engine)[0] == 1
    assert steps(api, identifier)[1:] == [("SMS", "MADE", "not_delivered"), ("EMAIL", "WAITING", None)]
    (third,) = rows("SELECT check_at - now() AS left FROM fallback_step WHERE step = 2")
    assert timedelta(seconds=20) < third.left <= timedelta(seconds=30)
    end(rows, "DELIVERED", "PUSH")
    rows("UPDATE fallback_step SET check_at = now() WHERE step = 2")
    assert advance(engine)[0] == 0
    assert steps(api, identifier)[2] == ("EMAIL", "DROPPED", "delivered")
    assert_ledger_is_clean(engine)


def test_the_clock_of_a_scheduled_chain_starts_when_it_is_due(api: Api, rows: Rows) -> None:
    """Fails when it starts at acceptance: the second channel would go out before the first."""
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    api.post(chain("PUSH", "SMS", after=30, scheduled_at=at.isoformat()))
    (second,) = rows("SELECT check_at FROM fallback_step WHERE step = 1")
    assert second.check_at == at + timedelta(seconds=30)


def test_a_cancelled_chain_ends(api: Api, rows: Rows, engine: Engine) -> None:
    """Whatever of it had failed before."""
    waiting = api.post(chain("PUSH", "SMS")).get_json()["id"]
    failed = api.post(chain("PUSH", "SMS")).get_json()["id"]
    rows("UPDATE delivery SET status = 'FAILED', error_code = 'x' WHERE notification_id = %(id)s::uuid", id=failed)
    for identifier in (waiting, failed):
        assert api.cancel(identifier).status_code == 200
        assert steps(api, identifier)[1] == ("SMS", "DROPPED", "cancelled")
    assert advance(engine)[0] == 0
    assert len(rows("SELECT FROM delivery")) == 2


def test_a_cancel_waits_for_a_step_that_is_being_made_and_cancels_it_too(
    api: Api, rows: Rows, engine: Engine
) -> None:
    """Fails when the deliveries are looked at before the steps: the new one would go out after the cancel."""
    identifier = api.post(chain("PUSH", "SMS")).get_json()["id"]
    end(rows, "FAILED", "PUSH")
    answers: list[Any] = []
    with engine.connect() as connection:
        assert [each.reason for each in fallback.advance(connection, 10, 6)[0]] == ["failed"]
        with in_thread(lambda: answers.append(api.cancel(identifier).get_json())):
            never(lambda: answers, seconds=0.4)
            connection.commit()
    assert [each["result"] for each in answers[0]["deliveries"]] == ["already ended", "cancelled"]
    assert_ledger_is_clean(engine)


def test_a_superseded_chain_ends(api: Api, rows: Rows, engine: Engine) -> None:
    """Also where its first channel had failed already and the second was about to be made."""
    old = [api.post(chain("PUSH", "SMS", supersede_key="k")).get_json()["id"] for _ in range(1)]
    end(rows, "FAILED", "PUSH")
    new = api.post(chain("PUSH", "SMS", supersede_key="k")).get_json()["id"]
    assert steps(api, old[0])[1] == ("SMS", "DROPPED", "superseded")
    assert steps(api, new)[1] == ("SMS", "WAITING", None)
    assert advance(engine)[0] == 0


def test_a_push_to_many_devices_fails_when_all_of_them_did(api: Api, rows: Rows, engine: Engine) -> None:
    """One device that got it is enough; a later step makes a delivery for each device too."""
    add_user(engine, "u1", phone="+447700900001")
    for token in ("sandbox:a", "sandbox:b"):
        add_device(engine, "u1", token)
    identifier = api.post(chain("PUSH", "SMS", recipients=None)).get_json()["id"]
    one, other = rows("SELECT id FROM delivery ORDER BY id")
    rows(f"UPDATE delivery SET {ENDS['FAILED']} WHERE id = '{one.id}'")
    assert advance(engine)[0] == 0
    rows(f"UPDATE delivery SET {ENDS['FAILED']} WHERE id = '{other.id}'")
    assert advance(engine)[0] == 1
    second = api.post(chain("SMS", "PUSH", recipients=None)).get_json()["id"]
    end(rows, "FAILED", "SMS")
    assert advance(engine)[0] == 1
    assert steps(api, identifier)[1][1] == steps(api, second)[1][1] == "MADE"
    found = rows(
        "SELECT device_id FROM delivery WHERE notification_id = %(id)s::uuid AND channel = 'PUSH'", id=second
    )
    assert len({row.device_id for row in found}) == 2
    assert_ledger_is_clean(engine)


def test_channels_without_an_address_are_left_out(api: Api, engine: Engine, rows: Rows) -> None:
    """The first that can be reached is the first step; the others are named in `suppressed`."""
    add_user(engine, "u1", phone="+447700900001", email="ana@example.com")
    body = api.post(chain("PUSH", "SMS", "EMAIL", recipients=None)).get_json()
    assert body["suppressed"] == [{"channel": "PUSH", "reason": "no_device"}]
    assert [each["channel"] for each in body["deliveries"]] == ["SMS"]
    assert steps(api, body["id"]) == [("SMS", "MADE", "first"), ("EMAIL", "WAITING", None)]


def test_a_chain_goes_beside_other_channels(api: Api, rows: Rows, engine: Engine) -> None:
    """What fails beside the chain is no business of it."""
    body = api.post(chain("PUSH", "SMS", channels=["EMAIL", "IN_APP"])).get_json()
    assert [each["channel"] for each in body["deliveries"]] == ["EMAIL", "IN_APP", "PUSH"]
    end(rows, "FAILED", "EMAIL")
    assert advance(engine)[0] == 0
    end(rows, "FAILED", "PUSH")
    assert advance(engine)[0] == 1
    assert_ledger_is_clean(engine)


def test_racing_sweeps_make_each_step_once(api: Api, rows: Rows, engine: Engine) -> None:
    """Fails when a step is not locked: `delivery_count` would be raised twice for one delivery."""
    accept = api_services(api.settings).accept
    each = Submission(
        *("u1", "orders", Priority.LOW, (), "t", "b", TO, {}, {}),
        fallback=Fallback((Channel.PUSH, Channel.SMS), 30),
    )
    accept.many("demo", [each] * 200)
    end(rows, "FAILED", "PUSH")
    rows("UPDATE fallback_step SET check_at = now() WHERE step = 1")
    start = threading.Barrier(6)

    def sweep(_number: int) -> int:
        start.wait(10)
        return advance(engine)[0]

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(sweep, range(6))) == 200
    assert len(rows("SELECT FROM delivery WHERE channel = 'SMS'")) == 200
    assert rows("SELECT count(*) AS n FROM fallback_wake")[0].n == 0
    assert_ledger_is_clean(engine)


def test_a_wake_is_lost_by_nobody_who_dies(api: Api, rows: Rows, engine: Engine) -> None:
    """Fails when the wake is not in the transaction that ends the delivery, or goes before the step is made."""
    api.post(chain("PUSH", "SMS"))
    with engine.connect() as connection:
        connection.exec_driver_sql("UPDATE delivery SET status = 'FAILED', error_code = 'x'")
        connection.rollback()
    assert rows("SELECT count(*) AS n FROM fallback_wake")[0].n == 0
    end(rows, "FAILED", "PUSH")
    with engine.connect() as connection:
        assert len(fallback.advance(connection, 10, 6)[0]) == 1
        connection.rollback()
    assert advance(engine)[0] == 1


def test_a_worker_that_records_a_failure_makes_the_next_at_once(
    api: Api, rows: Rows, engine: Engine, run_worker: Any
) -> None:
    """No sweep runs here."""

    async def reject(_message: Any) -> Rejected:
        return Rejected("gone", "gone")

    (delivery,) = api.post(chain("PUSH", "SMS")).get_json()["deliveries"]
    with run_worker(ScriptedProvider(reject)) as running:
        running.park([delivery["id"]], channel=Channel.PUSH, priority=Priority.NORMAL)
        eventually(lambda: len(rows("SELECT FROM delivery WHERE channel = 'SMS'")) == 1)
    assert_ledger_is_clean(engine)


@pytest.mark.parametrize(
    "body",
    [
        {"channels": []},
        {"channels": [], "fallback": ["PUSH"]},
        {"channels": ["SMS"], "fallback": ["PUSH", "SMS"]},
        {"channels": [], "fallback": ["SMS", "SMS"]},
        {"channels": [], "fallback": ["IN_APP", "SMS"]},
        {"channels": [], "fallback": ["PUSH", "FAX"]},
        {"channels": [], "fallback": {"channels": ["PUSH", "SMS"], "after_seconds": 0}},
        {"channels": [], "fallback": {"channels": ["PUSH", "SMS"], "after": 1}},
    ],
)
def test_a_chain_that_makes_no_sense_is_refused(api: Api, body: dict[str, Any]) -> None:
    """400 with what is wrong."""
    answer = api.post(sms() | body)
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "VALIDATION_BODY"
