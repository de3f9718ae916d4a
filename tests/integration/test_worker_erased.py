"""What was erased is not sent, whatever messages are still on their way or come back."""

import pytest
from sqlalchemy.engine import Engine

from app.services.erase import Erase
from tests import delivery_rows as rows
from tests.pipeline_parts import sql
from tests.sealed import VAULT
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider


@pytest.fixture
def ids(engine: Engine) -> list[str]:
    """Deliveries whose ids are in the pipe, and whose user is erased meanwhile."""
    made = rows.add(engine, 3)
    sql(engine, "INSERT INTO erasure (tenant_id, id, user_id) VALUES ('demo', gen_random_uuid(), '42')")
    Erase(engine, VAULT, settled_seconds=0).run_once()
    assert rows.statuses(engine, made) == {"CANCELLED": 3}
    return made


def test_a_message_that_comes_after_the_erasure_sends_nothing(run_worker, engine, ids):
    """Fails when content is erased without cancelling first, or a claim does not compare the state."""
    provider = ScriptedProvider()
    other = rows.add(engine)
    with run_worker(provider) as running:
        running.park([*ids, *other])
        eventually(lambda: rows.statuses(engine, other) == {"SENT": 1})
    assert rows.statuses(engine, ids) == {"CANCELLED": 3}
    assert len(provider.calls) == 1


def test_an_erased_delivery_that_is_brought_back_is_not_sent(run_worker, engine, ids):
    """As an operator's replay, or a restored backup, would bring it back: there is nothing to send."""
    rows.change(engine, ids, status="QUEUED")
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"FAILED": 3})
    assert rows.row(engine, ids[0])["error_code"] == "erased"
    assert provider.calls == []
