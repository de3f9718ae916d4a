"""Erasing a user: what was said is gone, what was not sent is cancelled, and every row is still counted."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from flask import Flask
from sqlalchemy.engine import Engine, Row

from app.db import erasures, recovery
from app.domain.states import DeliveryState
from app.factory import create_app
from app.services.erase import Erase, pseudonym_of
from app.services.ledger import Ledger
from app.services.tokens import mint
from app.settings import Settings
from app.wiring import vault
from tests.integration.rows import make_day, put, utc_today

STATES = ("PENDING", "QUEUED", "SENT", "DELIVERED", "FAILED", "CANCELLED", "EXPIRED")


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    """No Redis and no Kafka: erasing needs neither."""
    return make_settings(
        redis_url="redis://127.0.0.1:1/0", kafka_bootstrap_servers="127.0.0.1:1", log_level="ERROR"
    )


@pytest.fixture
def api(settings: Settings) -> Flask:
    """The API on the same database."""
    return create_app(settings)


@pytest.fixture
def erase(engine: Engine, settings: Settings) -> Erase:
    """Upkeep's half, without the wait for what is being accepted."""
    return Erase(engine, vault(settings), settled_seconds=0, chunk=3)


def ask(api: Flask, settings: Settings, method: str, path: str, tenant: str = "demo") -> Any:
    headers = {"Authorization": f"Bearer {mint(settings, tenant, 'tests')}"}
    return api.test_client().open(path, method=method, headers=headers)


def delete(api: Flask, settings: Settings, user: str = "u") -> dict[str, Any]:
    answer = ask(api, settings, "DELETE", f"/v1/users/{user}")
    assert answer.status_code == 202
    job: dict[str, Any] = answer.get_json()
    return job


def fill(engine: Engine, *states: str, tenant: str = "demo", at: datetime | None = None) -> None:
    """A notification of user `u` with something personal in every place that can hold it."""
    notification, deliveries = put(engine, *states, tenant=tenant, at=at, attempts=1)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE notification SET sealed = 'secret', metadata = '{\"a\": \"secret\"}',"
            " supersede_key = 'secret',"
            " decision = '{\"a\": \"secret\"}', locale = 'pt' WHERE id = %s",
            (str(notification),),
        )
        connection.exec_driver_sql(
            "UPDATE delivery SET last_error = 'secret', device_id = gen_random_uuid() WHERE notification_id = %s",
            (str(notification),),
        )
        connection.exec_driver_sql(
            "UPDATE attempt SET detail = 'secret' WHERE delivery_id = ANY(%s::uuid[])",
            ([str(each) for each in deliveries],),
        )


def rows(engine: Engine, statement: str) -> list[Row[Any]]:
    with engine.begin() as connection:
        return list(connection.exec_driver_sql(statement))


def everything(engine: Engine, tenant: str = "demo") -> str:
    """Each row of the pipeline and of users, as text."""
    tables = ("notification", "delivery", "attempt", "app_user", "device", "idempotency_key", "erasure")
    return "\n".join(
        str(row[0])
        for table in tables
        for row in rows(engine, f"SELECT t::text FROM {table} t WHERE tenant_id = '{tenant}'")
    )


def test_nothing_personal_is_left_and_every_row_is_still_counted(
    api: Flask, settings: Settings, engine: Engine, erase: Erase
) -> None:
    """In the partitions of several days, in every state; another tenant's user of the same id stays as it was.

    Fails when a column is forgotten, when rows are deleted, or when the tenant is not asked for.
    """
    day = utc_today() - timedelta(days=3)
    make_day(engine, day)
    for _ in range(4):
        fill(engine, *STATES)
    fill(engine, *STATES, at=datetime(day.year, day.month, day.day, 12, tzinfo=UTC))
    fill(engine, *STATES, tenant="other")
    before = everything(engine, "other")
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO app_user (tenant_id, id) VALUES ('demo', 'u')")
        connection.exec_driver_sql(
            "INSERT INTO idempotency_key VALUES ('demo', 'POST /v1/notifications of u', 'k', '',"
            " gen_random_uuid(), '{}', now())"
        )
    job = delete(api, settings)
    assert job["status"] == "RUNNING"
    assert ask(api, settings, "GET", "/v1/users/u").status_code == 404
    while erase.step() is not None:
        pass
    done = ask(api, settings, "GET", f"/v1/erasures/{job['id']}").get_json()
    assert (done["status"], done["notifications"], done["cancelled"]) == ("DONE", 5, 10)
    assert ask(api, settings, "GET", f"/v1/erasures/{job['id']}", "other").status_code == 404
    left = everything(engine)
    assert "secret" not in left
    assert ",u," not in left
    assert "of u" not in left
    assert before == everything(engine, "other")
    pseudonym = pseudonym_of(vault(settings), "demo", "u")
    assert {row.user_id for row in rows(engine, "SELECT user_id FROM delivery WHERE tenant_id = 'demo'")} == {
        pseudonym
    }
    sums = rows(engine, "SELECT status, count(*) AS count FROM delivery WHERE tenant_id = 'demo' GROUP BY 1")
    counted = {row.status: row.count for row in sums}
    assert counted == {"CANCELLED": 15} | {state: 5 for state in STATES[2:] if state != "CANCELLED"}
    assert Ledger(engine).compare().is_clean


@pytest.mark.parametrize("state", [DeliveryState.SENDING, DeliveryState.UNKNOWN])
def test_what_is_in_flight_is_asked_to_end_and_erased_when_it_has(
    api: Flask, settings: Settings, engine: Engine, erase: Erase, state: DeliveryState
) -> None:
    """Its content goes at once; what its worker writes afterwards goes in a later pass.

    Fails when the job ends while a delivery is in flight, or takes the row out of a worker's hands.
    """
    fill(engine, state)
    job = delete(api, settings)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE delivery SET uncertain = true")
    erase.step()
    erase.step()
    ((status, asked, sealed),) = rows(
        engine, "SELECT d.status, d.cancel_requested_at, n.sealed FROM delivery d, notification n"
    )
    assert (status, sealed) == (state, None)
    assert asked is not None
    assert ask(api, settings, "GET", f"/v1/erasures/{job['id']}").get_json()["status"] == "RUNNING"
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE delivery SET status = 'FAILED', error_code = 'x', last_error = 'secret', lease_until = NULL"
        )
        connection.exec_driver_sql("UPDATE attempt SET detail = 'secret'")
    while erase.step() is not None:
        pass
    assert ask(api, settings, "GET", f"/v1/erasures/{job['id']}").get_json()["status"] == "DONE"
    assert "secret" not in everything(engine)


def test_a_late_receipt_brings_no_text_back(api: Flask, settings: Settings, engine: Engine, erase: Erase) -> None:
    """The state moves on, as for any other; what the provider says of the address is not kept."""
    fill(engine, "SENT")
    delete(api, settings)
    while erase.step() is not None:
        pass
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE delivery SET provider_message_id = 'm'")
        ((identifier,),) = connection.exec_driver_sql("SELECT id::text FROM delivery")
        values = {"id": identifier, "receipt": "{}", "message_id": "m", "code": "gone", "detail": "secret"}
        connection.exec_driver_sql(recovery.RECEIPT_NEGATIVE, values)
    ((status, code, text),) = rows(engine, "SELECT status, error_code, last_error FROM delivery")
    assert (status, code, text) == ("FAILED", "gone", None)


def test_a_job_waits_for_what_is_being_accepted_and_spares_who_comes_back(
    api: Flask, settings: Settings, engine: Engine
) -> None:
    """What commits after the first pass is found by a later one; what is sent later to the same id stays.

    Fails when the job ends with its first pass.
    """
    erase = Erase(engine, vault(settings), settled_seconds=10)
    job = delete(api, settings, "u")
    assert erase.run_once() == 0
    assert ask(api, settings, "GET", f"/v1/erasures/{job['id']}").get_json()["status"] == "RUNNING"
    fill(engine, "PENDING")
    fill(engine, "PENDING", at=datetime.now(UTC) + timedelta(seconds=60))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE erasure SET next_at = now()")
    erase.run_once()
    assert ask(api, settings, "GET", f"/v1/erasures/{job['id']}").get_json()["status"] == "DONE"
    states = rows(engine, "SELECT status, user_id FROM delivery ORDER BY id")
    assert [row.status for row in states] == ["CANCELLED", "PENDING"]
    assert states[1].user_id == "u"


def test_asked_again_the_job_begins_again(api: Flask, settings: Settings, engine: Engine, erase: Erase) -> None:
    """One job at a time for a user: the second request finds it, and what was sent in between goes as well.

    Fails when the second request leaves the first one's bound.
    """
    first = delete(api, settings)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE erasure SET requested_at = now() - interval '1 hour'")
    fill(engine, "PENDING")
    assert delete(api, settings)["id"] == first["id"]
    while erase.step() is not None:
        pass
    assert "secret" not in everything(engine)
    assert delete(api, settings)["id"] != first["id"]


def test_a_killed_chunk_is_done_again_and_two_processes_share_the_work(
    api: Flask, settings: Settings, engine: Engine, erase: Erase
) -> None:
    """A transaction that dies leaves the job where it was; a job that one holds, another passes over.

    Fails when progress is written outside the chunk's transaction, or the job's row is not locked.
    """
    for _ in range(10):
        fill(engine, "PENDING", "SENT")
    job = delete(api, settings)
    held = engine.connect()
    transaction = held.begin()
    taken = erasures.take(held)
    assert taken is not None
    ids = erasures.chunk(held, taken, "ffffffff-ffff-ffff-ffff-ffffffffffff", 3)
    erasures.erase(held, ids, "erased:x")
    erasures.progress(held, taken, ids[-1], erasures.Erased(3, 0), 3)
    assert erase.step() is None
    transaction.rollback()
    held.close()

    def work() -> None:
        while erase.step() is not None:
            pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    done = ask(api, settings, "GET", f"/v1/erasures/{job['id']}").get_json()
    assert (done["status"], done["notifications"], done["cancelled"]) == ("DONE", 10, 10)


def test_a_person_cannot_read_erasures_and_ids_are_checked(api: Flask, settings: Settings) -> None:
    """404 for what is no id of a job."""
    for path in ("/v1/erasures/7", "/v1/erasures/01a22d60-47d0-79a7-9147-1bc22276754c"):
        answer = ask(api, settings, "GET", path)
        assert answer.status_code == 404
        assert orjson.loads(answer.data)["error"]["code"] == "DOMAIN_ERASURE_NOT_FOUND"
