"""The simulator's memory: exact counts, a true sliding second, a bounded outbox; and its scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import records
from sandbox.gateway import Gateway
from sandbox.page import outbox_page
from sandbox.records import Call, Filter, SlidingSecond
from sandbox.scripts import Act, Script, script_for


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=200))
def test_sliding_second_finds_the_fullest_window(ticks):
    """Against counting every window by hand; a bucket per calendar second would miss half of a burst.

    A tick is 1/1024 s, which a double holds exactly: of two calls that are a second apart none is in doubt.
    """
    times = sorted(ticks)
    window = SlidingSecond()
    for at in times:
        window.add(at / 1024)
    assert window.most == max(sum(end - 1024 < at <= end for at in times) for end in times)


def test_counts_tell_unique_from_duplicate_by_reference():
    """Accepted twice is one unique and one duplicate; a failure is neither."""
    gateway = Gateway(clock=iter(range(100)).__next__)
    for number, reference in (("253", "a"), ("253", "a"), ("253", "a"), ("000", "b"), ("000", "b"), ("499", "c")):
        gateway.take("sms", f"+447700900{number}", reference, "", "x")
    stats = gateway.records.stats()
    assert (stats["calls"], stats["accepted"], stats["unique"], stats["duplicates"]) == (6, 4, 3, 1)
    assert stats["by_outcome"] == {"failed": 2, "accepted": 3, "dropped": 1}
    assert stats["max_in_any_second"] == 1
    assert stats["providers"]["sandbox-sms"]["calls"] == 6
    assert stats["providers"]["sandbox-push"]["calls"] == 0


def test_duplicate_over_two_providers_counts_in_all_but_in_neither():
    """A failover that sends twice is a duplicate to the person, though each provider saw it once."""
    gateway = Gateway()
    gateway.take("sms", "+447700900000", "a", "", "x")
    gateway.take("push", "sandbox:ok", "a", "", "x")
    stats = gateway.records.stats()
    assert stats["duplicates"] == 1
    assert all(each["duplicates"] == 0 for each in stats["providers"].values())


@pytest.mark.parametrize(("rows", "characters"), [(10, 10_000), (1000, 50)])
def test_outbox_is_bounded_and_counts_are_not(monkeypatch, rows, characters):
    """A soak fills neither the memory nor forgets a duplicate."""
    monkeypatch.setattr(records, "OUTBOX_ROWS", rows)
    monkeypatch.setattr(records, "OUTBOX_CHARACTERS", characters)
    gateway = Gateway()
    for number in range(100):
        gateway.take("sms", "+447700900000", f"r{number}", "", "12345")
    gateway.take("sms", "+447700900000", "r0", "", "12345")
    assert len(list(gateway.records.newest(Filter(limit=1000)))) == 10
    assert gateway.records.stats()["duplicates"] == 1


def test_limit_holds_in_any_second_and_frees_itself():
    """Three a second: the fourth is refused until a second has passed since the first."""
    times = iter([0.0, 0.1, 0.2, 0.3, 0.99, 1.0, 1.05])
    gateway = Gateway(limits={"sms": 3}, clock=times.__next__)
    outcomes = [gateway.take("sms", "+447700900000", str(n), "", "").outcome for n in range(7)]
    assert outcomes == ["accepted"] * 3 + ["rate_limited"] * 2 + ["accepted"] + ["rate_limited"]


@pytest.mark.parametrize(
    ("recipient", "script"),
    [
        ("ok@sandbox.example.com", Script(Act.ACCEPT)),
        ("someone@sandbox.example.com", Script(Act.ACCEPT)),
        ("gone@other.example.com", Script(Act.ACCEPT)),
        ("fail-503x1@sandbox.example.com", Script(Act.FAIL, 1)),
        ("FAIL-503X2@sandbox.example.com", Script(Act.FAIL, 2)),
        ("fail-503@sandbox.example.com", Script(Act.FAIL)),
        ("gone@sandbox.example.com", Script(Act.GONE)),
        ("throttle-x1@sandbox.example.com", Script(Act.THROTTLE, 1)),
        ("slow-2500@sandbox.example.com", Script(Act.SLOW, seconds=2.5)),
        ("timeout@sandbox.example.com", Script(Act.HANG)),
        ("drop-after-accept@sandbox.example.com", Script(Act.DROP)),
        ("sandbox:gone", Script(Act.GONE)),
        ("sandbox:slow-10", Script(Act.SLOW, seconds=0.01)),
        ("another-token", Script(Act.ACCEPT)),
        ("+447700900000", Script(Act.ACCEPT)),
        ("+447700900123", Script(Act.ACCEPT)),
        ("+447700900153", Script(Act.FAIL, 1)),
        ("+447700900253", Script(Act.FAIL, 2)),
        ("+447700900503", Script(Act.FAIL)),
        ("+447700900400", Script(Act.GONE)),
        ("+447700900429", Script(Act.THROTTLE, 1)),
        ("+447700900225", Script(Act.SLOW, seconds=2.5)),
        ("+447700900408", Script(Act.HANG)),
        ("+447700900499", Script(Act.DROP)),
        ("+12025550400", Script(Act.ACCEPT)),
    ],
)
def test_recipient_chooses_the_script(recipient, script):
    """The same table for an e-mail, a push token and a phone number."""
    assert script_for(recipient) == script


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("set_limits", {"sms": -1}),
        ("set_limits", {"sms": True}),
        ("set_limits", {"sms": "500"}),
        ("set_limits", {"fax": 1}),
        ("set_behaviours", {"sms": {"explode": True}}),
        ("set_behaviours", {"sms": [1]}),
        ("set_behaviours", {"sms": {"latency_ms": "5"}}),
        ("set_behaviours", {"sms": {"latency_ms": -5}}),
    ],
)
def test_steering_that_makes_no_sense_is_refused_whole(method, value):
    """Nothing is changed by half."""
    gateway = Gateway()
    with pytest.raises(ValueError, match=r"."):
        getattr(gateway, method)({"push": {} if method == "set_behaviours" else 5} | value)
    assert gateway.limits["push"] == 0


def test_page_escapes_everything_that_came_in():
    """The page is opened by people beside whatever tests send."""
    evil = "<script>alert(1)</script>\"'"
    call = Call(0.0, "SMS", "sandbox-sms", evil, evil, evil, evil, "accepted")
    stats: dict[str, object] = dict.fromkeys(("calls", "accepted", "unique", "duplicates"), 1)
    page = outbox_page([call], Filter(recipient=evil, reference=evil), stats)
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 6
