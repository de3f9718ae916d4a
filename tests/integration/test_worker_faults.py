"""Faults in a worker's own threads: each concerns its ids only, and no thread ends by it."""

import asyncio

import pytest
from sqlalchemy.exc import OperationalError

from app.db import deliveries
from app.domain.kinds import Channel
from app.services.deliver import dispatcher, recorder
from app.services.deliver import lane as lane_module
from providers.in_app.store import InAppProvider
from tests import delivery_rows as rows
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(lane_module, "SERVER_PAUSE_SECONDS", 0.02)


def failing(real, times, error):
    """Return `real`, preceded by `times` calls that raise."""
    left = [error] * times

    def act(*arguments):
        if left:
            raise left.pop()
        return real(*arguments)

    act.left = left
    return act


def test_an_outage_of_the_database_is_not_held_against_a_suspect(run_worker, engine, monkeypatch, redis_client):
    """Fails when a start is only forgotten after a load that worked: four failures end it as `undeliverable`."""
    down = OperationalError("SELECT", {}, Exception("server closed the connection"))
    monkeypatch.setattr(deliveries, "load", failing(deliveries.load, 3 * lane_module.CRASHES_ALLOWED, down))
    ids = rows.add(engine)
    with run_worker(ScriptedProvider()) as running:
        running.park(ids, is_suspect=True)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "SENT")
    assert redis_client.keys("arauto:{crash}:*") == []


def test_an_id_that_is_none_fails_alone(run_worker, engine):
    """Fails when an exception in the prepare thread ends it, or puts the whole chunk back again and again."""
    ids = rows.add(engine, 6)
    with run_worker(ScriptedProvider()) as running:
        running.park([*ids[:3], "no-id", *ids[3:]])
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 6})
        running.park(more := rows.add(engine, 2))
        eventually(lambda: rows.statuses(engine, more) == {"SENT": 2})


@pytest.mark.parametrize("step", ["rate", "guard", "claim"])
def test_a_fault_of_one_step_ends_no_lane(run_worker, engine, monkeypatch, step):
    """Fails when the thread of a step ends by a surprise: its lane would park for ever."""
    ids = rows.add(engine, 4)
    if step == "claim":
        monkeypatch.setattr(deliveries, "claim", failing(deliveries.claim, 2, KeyError("surprise")))
    with run_worker(ScriptedProvider()) as running:
        limits = running.worker._limits
        if step == "rate":
            monkeypatch.setattr(limits.rate, "take", failing(limits.rate.take, 2, KeyError("surprise")))
        if step == "guard":
            # The claim has happened by then: the call is not made, and the lease brings the row back.
            acquire = failing(limits.guard.acquire, 1, KeyError("surprise"))
            monkeypatch.setattr(limits.guard, "acquire", acquire)
            running.park(rows.add(engine))
            eventually(lambda: not acquire.left)
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 4})
        [lane] = running.worker._lanes.values()
        eventually(lambda: lane.window.in_flight == 0)


def test_an_outcome_that_cannot_be_judged_costs_itself_and_not_the_recorder(run_worker, engine, monkeypatch):
    """Fails when the recorder's thread ends by it: every later call of the process would become UNKNOWN."""
    monkeypatch.setattr(recorder, "decide", failing(recorder.decide, 1, KeyError("surprise")))
    bad, good = rows.add(engine), rows.add(engine, 3)
    with run_worker(ScriptedProvider()) as running:
        running.park(bad)
        eventually(lambda: running.worker._lanes and rows.row(engine, bad[0])["status"] == "SENDING")
        running.park(good)
        eventually(lambda: rows.statuses(engine, good) == {"SENT": 3})
    assert rows.row(engine, bad[0])["status"] == "SENDING", "its lease brings it to UNKNOWN"


def test_a_provider_that_does_not_close_keeps_no_outcome_back(run_worker, engine, monkeypatch):
    """Fails when its time-out ends the stop: what was answered would be UNKNOWN although it is known."""

    class Clinging(ScriptedProvider):
        async def close(self):
            await asyncio.sleep(3600)

    monkeypatch.setattr(dispatcher, "_START_SECONDS", 0.3)
    ids = rows.add(engine, 3)
    with run_worker(Clinging()) as running:
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 3})
    assert not running.worker._recorder._thread.is_alive()


def test_an_in_app_message_that_was_scheduled_needs_no_address(run_worker, engine):
    """Fails when every channel must have a recipient: a scheduled in-app message would end `no_recipient`."""
    ids = rows.add(engine, channel=Channel.IN_APP, recipient=None)
    with run_worker(ScriptedProvider(), {Channel.IN_APP: InAppProvider()}) as running:
        running.park(ids, channel=Channel.IN_APP)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "DELIVERED")
