"""What a worker passes on to a provider so that an old message does not outlive its use."""

import threading

import pytest

from app.db import deliveries
from app.domain.kinds import Channel
from providers.outcome import Accepted, Retry, Scope
from tests import delivery_rows as rows
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider


class Keeping(ScriptedProvider):
    """Keeps the messages."""

    def __init__(self):
        self.messages = []
        super().__init__(self._take)

    async def _take(self, message):
        self.messages.append(message)
        return Accepted("id")


@pytest.mark.parametrize("channel", [Channel.PUSH, Channel.SMS, Channel.EMAIL])
def test_the_provider_is_told_how_long_a_message_is_worth_anything(run_worker, engine, channel, monkeypatch):
    """Never longer than to the deadline. Fails when the time is taken at the load: waiting would be added."""
    real = deliveries.claim

    def slow(*arguments):
        answer = real(*arguments)
        threading.Event().wait(1.2)
        return answer

    monkeypatch.setattr(deliveries, "claim", slow)
    ids = rows.add(engine, channel=channel, expires_in=30, recipient="sandbox:ok")
    provider = Keeping()
    with run_worker(provider) as running:
        running.park(ids, channel=channel)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 1})
    (message,) = provider.messages
    assert 20 <= message.ttl_seconds <= 28


def test_a_message_without_a_deadline_has_no_limit(run_worker, engine):
    """The provider's own default holds then."""
    ids = rows.add(engine)
    provider = Keeping()
    with run_worker(provider) as running:
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 1})
    assert provider.messages[0].ttl_seconds is None
    assert provider.messages[0].collapse_key is None


def test_messages_of_one_key_share_a_collapse_key_of_their_user(run_worker, engine):
    """It is a keyed digest that fits every provider: Web Push takes 32 URL-safe characters, APNs 64 bytes."""
    same = rows.add(engine, 2, channel=Channel.PUSH, supersede_key="ride " + "7" * 120)
    other_key = rows.add(engine, channel=Channel.PUSH, supersede_key="ride 8")
    other_user = rows.add(engine, channel=Channel.PUSH, supersede_key="ride 8", user_id="43")
    ids = same + other_key + other_user
    provider = Keeping()
    with run_worker(provider) as running:
        running.park(ids, channel=Channel.PUSH)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 4})
    keys = {message.reference: message.collapse_key for message in provider.messages}
    assert keys[same[0]] == keys[same[1]]
    assert len(set(keys.values())) == 3
    assert all(len(key) == 22 and "ride" not in key for key in keys.values())


def test_a_superseded_call_is_not_tried_again(run_worker, engine):
    """What was being sent when a newer one came ends CANCELLED if the provider did not take it."""
    ids = rows.add(engine)

    async def refuse(_message):
        rows.change(engine, ids, cancel_requested_at="sql:now()")
        return Retry("busy", "busy", scope=Scope.PROVIDER)

    with run_worker(ScriptedProvider(refuse)) as running:
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"CANCELLED": 1})
