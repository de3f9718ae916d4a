"""What gets into the audit log: changed fields without what is personal, and floods as counts."""

import pytest

from app.domain import origins
from app.domain.origins import NOWHERE, Origin
from app.services.audit import changed, mask
from app.services.refusal import Unauthenticated
from app.services.sign_in_failures import SignInFailures


class Clock:
    """Stands still until told otherwise."""

    now = 6000.0

    def __call__(self):
        return self.now


class Log:
    """Takes entries, or refuses them."""

    def __init__(self):
        self.entries = []
        self.is_away = False

    def write(self, entries):
        if self.is_away:
            raise OSError
        self.entries += entries


@pytest.fixture
def at():
    """Says where the work comes from; nowhere again after the test."""
    yield lambda address: origins.enter(Origin(address, "0" * 32))
    origins.enter(NOWHERE)


def made():
    log, clock = Log(), Clock()
    failures = SignInFailures(log.write, clock)
    failures._start = lambda: None
    return failures, log, clock


def failure(code="AUTH_TOKEN_INVALID", tenant="", subject=""):
    return Unauthenticated(code, "No.", tenant, subject)


def test_failures_of_a_minute_are_one_entry_with_a_count(at):
    """By reason, network and who it was, as far as that is known. Fails when each failure is an entry."""
    failures, log, clock = made()
    for host in range(250):
        at(f"192.0.2.{host}")
        failures.note(failure())
    failures.note(failure("AUTH_KEY_REVOKED", "demo", "ak_1"))
    at("198.51.100.1")
    failures.note(failure())
    failures.write_due()
    assert log.entries == [], "the minute is not over"
    clock.now += 60
    failures.write_due()
    told = {
        (e.tenant_id, e.actor, e.changes["reason"], e.network, e.count, e.action, e.at.timestamp())
        for e in log.entries
    }
    assert told == {
        ("", "unknown", "AUTH_TOKEN_INVALID", "192.0.2.0/24", 250, "sign_in.failed", 6000.0),
        ("demo", "ak_1", "AUTH_KEY_REVOKED", "192.0.2.0/24", 1, "sign_in.failed", 6000.0),
        ("", "unknown", "AUTH_TOKEN_INVALID", "198.51.100.0/24", 1, "sign_in.failed", 6000.0),
    }


def test_a_flood_from_everywhere_fills_no_table(at):
    """A hundred thousand failures from as many networks are some hundreds of entries, and their counts add up.

    Fails without the bound on groups.
    """
    failures, log, _ = made()
    for number in range(100_000):
        at(f"{number >> 8 & 255}.{number & 255}.{number >> 16}.1")
        failures.note(failure())
    failures.flush()
    assert len(log.entries) <= 201
    assert sum(entry.count for entry in log.entries) == 100_000


def test_what_the_database_does_not_take_comes_again(at):
    """Nothing is lost or counted twice; and an outage does not make the memory grow with each failure."""
    failures, log, clock = made()
    log.is_away = True
    for minute in range(3):
        for number in range(2000):
            at(f"10.{minute}.{number % 256}.1")
            failures.note(failure())
        clock.now += 60
        failures.write_due()
    assert len(failures._counts) <= 203
    log.is_away = False
    failures.write_due()
    assert log.entries == [], "it was asked a moment ago"
    clock.now += 60
    failures.write_due()
    assert sum(entry.count for entry in log.entries) == 6000
    failures.flush()
    assert sum(entry.count for entry in log.entries) == 6000


def test_changes_name_fields_and_show_what_may_be_shown():
    """Addresses are masked, contents only named, long texts cut, and what stayed is left out."""
    before = {"email": "ana@example.com", "locale": "pt", "attributes": {"a": 1}, "status": "ACTIVE"}
    after = {"email": "bea@example.org", "locale": "pt", "attributes": {"a": 2}, "phone": "+447700900123"}
    found = changed(before, after, named={"attributes"}, masked={"email", "phone"})
    assert found == {
        "attributes": {},
        "email": {"from": "a…@example.com", "to": "b…@example.org"},
        "phone": {"from": None, "to": "+44…23"},
        "status": {"from": "ACTIVE", "to": None},
    }
    assert changed({"note": "x" * 500}, {})["note"]["from"] == "x" * 64 + "…"
    assert mask("abcdefghijkl") == "ab…"
