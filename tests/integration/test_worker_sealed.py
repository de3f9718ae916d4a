"""The worker opens what is sealed: users' own addresses as they are at the time of the send."""

import pytest

from app.domain.kinds import Channel
from app.sealing import Vault
from providers.outcome import Accepted
from tests import delivery_rows as rows
from tests.pipeline_parts import sql
from tests.user_rows import add_device, add_user
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider

NEW_KEY = "2:" + "A" * 43 + "="


class Remembering(ScriptedProvider):
    """Remembers to whom it was asked to send."""

    def __init__(self) -> None:
        self.recipients = []
        super().__init__(self._take)

    async def _take(self, message):
        self.recipients.append(message.recipient)
        return Accepted("id")


@pytest.mark.parametrize(
    ("channel", "expected"),
    [(Channel.EMAIL, "ana@example.com"), (Channel.SMS, "+447700900001"), (Channel.PUSH, "sandbox:one")],
)
def test_a_delivery_without_a_recipient_goes_to_the_users_own_address(run_worker, engine, channel, expected):
    """The address is the one that is stored now, opened in the worker only."""
    add_user(engine, "42", email="ana@example.com", phone="+447700900001")
    device = add_device(engine, "42", "sandbox:one")
    ids = rows.add(engine, channel=channel, recipient=None)
    if channel is Channel.PUSH:
        rows.change(engine, ids, device_id=str(device))
    provider = Remembering()
    with run_worker(provider) as running:
        running.park(ids, channel=channel)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 1})
    assert provider.recipients == [expected]


def test_an_address_that_is_gone_is_not_used(run_worker, engine):
    """Fails when addresses are copied at acceptance: one erased in between would still be sent to."""
    add_user(engine, "42", phone="+447700900001")
    ids = rows.add(engine, recipient=None)
    sql(engine, "UPDATE app_user SET phone = NULL, phone_index = NULL")
    provider = Remembering()
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["error_code"] == "no_recipient")
    assert provider.recipients == []


def test_a_delivery_whose_key_is_missing_here_waits(run_worker, engine):
    """Fails when a worker without the newest key fails what another could send: it waits, at no attempt."""
    ids = rows.add(engine)
    with run_worker(ScriptedProvider(), encryption_keys=NEW_KEY) as running:
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "PENDING")
    row = rows.row(engine, ids[0])
    assert (row["attempts"], row["error_code"]) == (0, None)
    waits = sql(engine, "SELECT extract(epoch FROM next_attempt_at - now()) FROM delivery")[0][0]
    assert 30 < waits <= 90


def test_a_damaged_content_fails_its_own_delivery(run_worker, engine):
    """It can never be sent; the others of its chunk are."""
    bad, good = rows.add(engine), rows.add(engine, 5)
    other = Vault({1: b"x" * 32}, 1, b"x" * 32).seal(b"elsewhere", b"{}")
    sql(
        engine,
        "UPDATE notification n SET sealed = %(other)s FROM delivery d"
        " WHERE d.notification_id = n.id AND d.id = %(id)s",
        other=other,
        id=bad[0],
    )
    with run_worker(ScriptedProvider()) as running:
        running.park(bad + good)
        eventually(lambda: rows.statuses(engine, good) == {"SENT": 5})
    assert rows.row(engine, bad[0])["error_code"] == "unreadable"
