"""One conformance suite for every adapter, on the real simulator over sockets: same endings for all."""

import asyncio
import json
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from providers.base import Message, Provider
from providers.outcome import Accepted, Outcome, Rejected, Retry, Scope, Throttled, Unknown
from providers.registry import build
from tests.sandbox_client import Sandbox

SMS_NUMBERS = {
    "ok": "000",
    "fail-503": "503",
    "fail-503x2": "253",
    "gone": "400",
    "throttle-x1": "429",
    "slow-2500": "225",
    "timeout": "408",
    "drop-after-accept": "499",
}
NASTY = [
    "\ud83d",
    "a\x00b",
    "Hi\r\nBcc: x@example.net",
    "x" * 10_000,
    "\u2028\u2029",
    "=?utf-8?q?=0D=0A?=",
    "😀" * 500,
]


@dataclass(frozen=True)
class Adapter:
    """One adapter under test: how to build it and how to name a scripted recipient."""

    channel: str
    name: str

    def build(self, sandbox: Sandbox, timeout_seconds: float = 10.0) -> Provider:
        url = sandbox.smtp_url if self.channel == "EMAIL" else f"{sandbox.url}/{self.channel.lower()}"
        return self.at(url, timeout_seconds)

    def at(self, url: str, timeout_seconds: float = 10.0) -> Provider:
        return build(self.channel, url, sender="Arauto <arauto@example.com>", timeout_seconds=timeout_seconds)

    def dead(self) -> Provider:
        """Pointed at a port where nobody listens."""
        return self.at("smtp://127.0.0.1:1" if self.channel == "EMAIL" else "http://127.0.0.1:1/send")

    def nowhere(self) -> Provider:
        """Pointed at a name that does not resolve."""
        return self.at("smtp://mail.invalid" if self.channel == "EMAIL" else "http://gateway.invalid/send")

    def recipient(self, script: str) -> str:
        match self.channel:
            case "SMS":
                return f"+447700900{SMS_NUMBERS[script]}"
            case "PUSH":
                return f"sandbox:{script}"
            case _:
                return f"{script}@sandbox.example.com"

    def message(self, script: str, reference: str | None = None, **texts: str) -> Message:
        texts = {"title": "Your code", "body": "It is 123456.", **texts}
        return Message(reference or str(uuid.uuid4()), self.recipient(script), **texts)


ADAPTERS = [Adapter("SMS", "http-sms"), Adapter("PUSH", "http-push"), Adapter("EMAIL", "smtp")]


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    chosen: Adapter = request.param
    return chosen


def using(provider: Provider, work: Callable[[Provider], Awaitable[list[Outcome]]]) -> list[Outcome]:
    """Run the work in a loop of its own, between the adapter's start and close."""

    async def run() -> list[Outcome]:
        await provider.start()
        try:
            return await work(provider)
        finally:
            await provider.close()

    return asyncio.run(run())


def send(provider: Provider, *messages: Message) -> list[Outcome]:
    """Send the messages one after the other."""

    async def work(started: Provider) -> list[Outcome]:
        return [await started.send(message) for message in messages]

    return using(provider, work)


def put(sandbox: Sandbox, path: str, value: object) -> None:
    request = urllib.request.Request(sandbox.url + path, json.dumps(value).encode(), method="PUT")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


@pytest.fixture
def steered(sandbox: Sandbox) -> Iterator[Sandbox]:
    """The simulator, its limits and behaviours back to normal afterwards."""
    yield sandbox
    put(sandbox, "/limits", dict.fromkeys(("sms", "push", "email"), 0))
    put(sandbox, "/behaviour", dict.fromkeys(("sms", "push", "email")))


def test_accepted_message_is_in_the_outbox_under_its_reference(adapter, sandbox):
    """The reference, the recipient and the body arrive, and the provider's id comes back."""
    message = adapter.message("ok")
    (outcome,) = send(adapter.build(sandbox), message)
    assert isinstance(outcome, Accepted)
    assert outcome.message_id
    assert not outcome.is_final
    (row,) = sandbox.outbox(reference=message.reference)
    assert (row["recipient"], row["body"], row["subject"]) == (message.recipient, message.body, message.title)
    assert (row["channel"], row["outcome"]) == (adapter.channel, "accepted")


def test_life_and_collapse_key_reach_a_provider_that_knows_them(adapter, sandbox):
    """Fails when an adapter drops either: an old push would come up late, or beside the newer one."""
    message = replace(adapter.message("ok"), collapse_key="k" * 22, ttl_seconds=42)
    (outcome,) = send(adapter.build(sandbox), message)
    assert isinstance(outcome, Accepted)
    (row,) = sandbox.outbox(reference=message.reference)
    expected = {"SMS": ("", 42), "PUSH": ("k" * 22, 42), "EMAIL": ("", None)}
    assert (row["collapse_key"], row["ttl_seconds"]) == expected[adapter.channel]


def test_adapter_names_itself_and_its_deadline(adapter, sandbox):
    """The service's lease is computed from the deadline, and attempts are kept under the name."""
    provider = adapter.build(sandbox, timeout_seconds=7.5)
    assert (provider.name, provider.deadline_seconds) == (adapter.name, 7.5)


def test_unavailable_provider_is_a_retry(adapter, sandbox):
    """A refusal for now is no refused connection: the breaker tells them apart."""
    (outcome,) = send(adapter.build(sandbox), adapter.message("fail-503"))
    assert isinstance(outcome, Retry)
    assert not outcome.refused_connection


def test_same_reference_is_accepted_after_the_scripted_failures(adapter, sandbox):
    """Two failures, then accepted, counted by the reference that the adapter passes on."""
    message = adapter.message("fail-503x2")
    first, second, third = send(adapter.build(sandbox), message, message, message)
    assert isinstance(first, Retry)
    assert isinstance(second, Retry)
    assert isinstance(third, Accepted)


def test_throttled_recipient_says_when_to_come_back(adapter, sandbox):
    """Case H01. Throttling about one recipient carries its wait, and is not blamed on the account."""
    message = adapter.message("throttle-x1")
    first, second = send(adapter.build(sandbox), message, message)
    assert isinstance(first, Throttled)
    assert (first.retry_after_seconds, first.scope) == (1.0, Scope.RECIPIENT)
    assert isinstance(second, Accepted)


def test_throttled_account_is_told_from_a_throttled_recipient(adapter, steered):
    """Case H01. The provider's limit slows the whole account."""
    put(steered, "/limits", {adapter.channel.lower(): 1})
    first, second = send(adapter.build(steered), adapter.message("ok"), adapter.message("ok"))
    assert isinstance(first, Accepted)
    assert isinstance(second, Throttled)
    assert (second.retry_after_seconds, second.scope) == (1.0, Scope.ACCOUNT)


def test_provider_that_is_down_is_a_retry(adapter, steered):
    """A whole provider that answers "down" may take the message later."""
    put(steered, "/behaviour", {adapter.channel.lower(): {"down": True}})
    (outcome,) = send(adapter.build(steered), adapter.message("ok"))
    assert isinstance(outcome, Retry)


def test_dead_address_is_rejected_as_gone(adapter, sandbox):
    """The address is dead for every message, which later suppresses it."""
    (outcome,) = send(adapter.build(sandbox), adapter.message("gone"))
    assert isinstance(outcome, Rejected)
    assert (outcome.recipient_gone, outcome.scope) == (True, Scope.RECIPIENT)


def test_slow_answer_within_the_deadline_is_accepted(adapter, sandbox):
    """2.5 s are slow and still an answer."""
    (outcome,) = send(adapter.build(sandbox, timeout_seconds=8.0), adapter.message("slow-2500"))
    assert isinstance(outcome, Accepted)


def test_provider_that_never_answers_leaves_the_outcome_unknown(adapter, sandbox):
    """Case A17. The adapter's own deadline ends the call, and the message may have been taken."""
    message = adapter.message("timeout")
    began = time.monotonic()
    (outcome,) = send(adapter.build(sandbox, timeout_seconds=1.0), message)
    assert isinstance(outcome, Unknown)
    assert 0.9 <= time.monotonic() - began < 4.0
    assert len(sandbox.outbox(reference=message.reference)) == 1


def test_connection_lost_after_the_message_leaves_the_outcome_unknown(adapter, sandbox):
    """Case G09. The provider has it; one call was made and none is repeated by the adapter or its library."""
    message = adapter.message("drop-after-accept")
    (outcome,) = send(adapter.build(sandbox), message)
    assert isinstance(outcome, Unknown)
    assert [row["outcome"] for row in sandbox.outbox(reference=message.reference)] == ["dropped"]


def test_refused_connection_is_a_retry_that_says_so(adapter):
    """Nothing was sent; five of these in a row open the breaker."""
    (outcome,) = send(adapter.dead(), adapter.message("ok"))
    assert isinstance(outcome, Retry)
    assert (outcome.code, outcome.refused_connection) == ("connect_refused", True)


def test_unknown_host_is_a_retry(adapter):
    """A name that does not resolve may resolve later; nothing was sent."""
    (outcome,) = send(adapter.nowhere(), adapter.message("ok"))
    assert isinstance(outcome, Retry)
    assert outcome.refused_connection


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_no_text_makes_an_adapter_raise_or_fail(adapter, sandbox, text):
    """Case G15. Lone surrogates, NUL, line breaks and length arrive somehow; nothing fails on every try."""
    (outcome,) = send(adapter.build(sandbox), adapter.message("ok", title=text, body=text))
    assert isinstance(outcome, Accepted)


@pytest.mark.parametrize("recipient", ["", "\ud83d", "a\r\nb", "a@b@c", "x" * 400, "a@b,c@d"])
def test_no_recipient_makes_an_adapter_raise(adapter, sandbox, recipient):
    """What is no address is an outcome, not an exception."""
    message = Message(str(uuid.uuid4()), recipient, "t", "b")
    (outcome,) = send(adapter.build(sandbox), message)
    assert isinstance(outcome, Accepted | Rejected)


def test_hanging_recipient_holds_up_nobody_else(adapter, sandbox):
    """Case A17. 100 messages pass beside one that never gets its answer."""

    async def work(provider: Provider) -> list[Outcome]:
        hanging = asyncio.create_task(provider.send(adapter.message("timeout")))
        try:
            return await asyncio.gather(*(provider.send(adapter.message("ok")) for _ in range(100)))
        finally:
            assert not hanging.done()
            hanging.cancel()
            await asyncio.wait([hanging])

    outcomes = using(adapter.build(sandbox, timeout_seconds=20.0), work)
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)


def test_cancelled_call_frees_the_adapter_for_the_next(adapter, sandbox):
    """A shutdown may cancel a call; the pool is not short of a connection afterwards."""

    async def work(provider: Provider) -> list[Outcome]:
        hanging = asyncio.create_task(provider.send(adapter.message("timeout")))
        await asyncio.wait([hanging], timeout=0.3)
        hanging.cancel()
        await asyncio.wait([hanging])
        assert hanging.cancelled()
        return [await provider.send(adapter.message("ok"))]

    (outcome,) = using(adapter.build(sandbox), work)
    assert isinstance(outcome, Accepted)


def test_in_app_is_delivered_by_being_stored():
    """Nothing later can say more, so the outcome is final."""
    (outcome,) = send(build("IN_APP", ""), Message("r", "42", "t", "b"))
    assert outcome == Accepted("r", is_final=True)


@pytest.mark.parametrize("channel", ["SMS", "EMAIL", "PUSH"])
def test_null_takes_everything(channel):
    """For benchmarks: accepted at once, whatever the message."""
    (outcome,) = send(build(channel, "null://"), Message("r", "\ud83d", "t", "b"))
    assert outcome == Accepted("r")
