"""The last look before a send: minds that change between the accept and the send, on real parts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.db.deliveries import LOAD
from app.db.withhold import hold, withhold
from app.domain.ids import day_floor
from app.domain.kinds import Channel, Priority
from app.sealing import context
from providers.outcome import Accepted, Rejected
from tests import delivery_rows as rows
from tests.integration.rows import utc_today
from tests.integration.test_relay_plans import scans
from tests.pipeline_parts import sql
from tests.sealed import VAULT
from tests.user_rows import add_device, add_user
from tests.waiting import eventually
from tests.worker_harness import ScriptedProvider

TO = "+447700900000"


def choose(engine, choices: str = "{}", quiet_hours: str | None = None, user: str = "42") -> None:
    sql(
        engine,
        "INSERT INTO preference_set (tenant_id, user_id, choices, quiet_hours)"
        " VALUES ('demo', %(user)s, %(choices)s, %(quiet)s)"
        " ON CONFLICT (tenant_id, user_id) DO UPDATE"
        " SET choices = EXCLUDED.choices, quiet_hours = EXCLUDED.quiet_hours",
        user=user,
        choices=choices,
        quiet=quiet_hours,
    )


def suppress(engine, address: str, channel: str = "SMS", tenant: str = "demo") -> None:
    kind = {"SMS": "phone", "EMAIL": "email", "PUSH": "device"}[channel]
    sql(
        engine,
        "INSERT INTO suppression (tenant_id, channel, address_index, id, reason, source, masked, address)"
        " VALUES (%(tenant)s, %(channel)s, %(index)s, gen_random_uuid(), 'MANUAL', 'test', '***', 'x')",
        tenant=tenant,
        channel=channel,
        index=VAULT.index(tenant, kind, address),
    )


def night(before_minutes: int = 60, after_minutes: int = 60) -> str:
    """Quiet hours in UTC around the present moment, for every category."""
    now = datetime.now(UTC)
    start, end = now - timedelta(minutes=before_minutes), now + timedelta(minutes=after_minutes)
    return f'{{"on": true, "start": "{start:%H:%M}", "end": "{end:%H:%M}", "channels": ["SMS", "PUSH"]}}'


def sent(run_worker, engine, ids: list[str], **named: Any) -> ScriptedProvider:
    """Run a worker over `ids` until none of them is QUEUED, and return its provider."""
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(ids, **named)
        eventually(lambda: "QUEUED" not in rows.statuses(engine, ids))
        eventually(lambda: "SENDING" not in rows.statuses(engine, ids))
    return provider


def assert_called_off(engine, id_: str, code: str) -> None:
    row = rows.row(engine, id_)
    assert (row["status"], row["error_code"], row["attempts"], row["lease_token"]) == ("CANCELLED", code, 0, 0)
    assert rows.attempts(engine, id_) == []


def test_a_person_who_opted_out_meanwhile_gets_nothing(run_worker, engine):
    """CANCELLED with the reason, at no attempt; others of the chunk go. Fails without the look before the send."""
    off, on = rows.add(engine), rows.add(engine, 3)
    sql(engine, "UPDATE delivery SET user_id = 'off' WHERE id = %(id)s", id=off[0])
    choose(engine, '{"test": {"SMS": false}}', user="off")
    provider = sent(run_worker, engine, off + on)
    assert_called_off(engine, off[0], "preference_off")
    assert rows.statuses(engine, on) == {"SENT": 3}
    assert provider.count(off[0]) == 0


@pytest.mark.parametrize(("status", "code"), [("INACTIVE", "user_inactive"), ("SUSPENDED", "user_suspended")])
def test_a_user_who_is_not_active_any_more_gets_nothing(run_worker, engine, status, code):
    """Not even at an explicit recipient."""
    add_user(engine, "42", status=status)
    ids = rows.add(engine)
    assert sent(run_worker, engine, ids).calls == []
    assert_called_off(engine, ids[0], code)


def test_an_address_that_was_suppressed_meanwhile_gets_nothing(run_worker, engine):
    """Explicit or stored; the same address in another tenant or on another channel is another one."""
    add_user(engine, "42", phone="+447700900777")
    suppress(engine, TO)
    suppress(engine, "+447700900777")
    suppress(engine, "+447700900001", tenant="other")
    suppress(engine, "+447700900001", channel="EMAIL")
    explicit, stored, other = (
        rows.add(engine),
        rows.add(engine, recipient=None),
        rows.add(engine, recipient="+447700900001"),
    )
    provider = sent(run_worker, engine, explicit + stored + other)
    for id_ in explicit + stored:
        assert_called_off(engine, id_, "address_suppressed")
    assert [reference for reference, _ in provider.calls] == other


def test_a_muted_device_gets_nothing(run_worker, engine):
    """Muted after the accept."""
    add_user(engine, "42")
    device = add_device(engine, "42", "sandbox:one", is_muted=True)
    ids = rows.add(engine, channel=Channel.PUSH, recipient=None)
    rows.change(engine, ids, device_id=str(device))
    assert sent(run_worker, engine, ids, channel=Channel.PUSH).calls == []
    assert_called_off(engine, ids[0], "device_muted")


@pytest.mark.parametrize("moved_on", [{"attempts": 1}, {"status": "SENDING"}, {"status": "SENT"}])
def test_a_row_that_moved_on_is_neither_held_nor_called_off(engine, moved_on):
    """What another worker did meanwhile stands. Fails when status or attempts are not compared."""
    (id_,) = rows.add(engine)
    more: dict[str, dict[str, Any]] = {
        "SENDING": {"lease_token": 1, "lease_until": "sql:now() + interval '1 min'"},
        "SENT": {"sent_at": "sql:now()"},
    }
    rows.change(engine, [id_], **moved_on, **more.get(moved_on.get("status", ""), {}))
    before = rows.row(engine, id_)
    with engine.begin() as connection:
        assert hold(connection, [(id_, 0, 60.0)]) == 0
        assert withhold(connection, [(id_, 0, "preference_off")]) == 0
    assert rows.row(engine, id_) == before


def test_mandatory_messages_go_whatever_was_chosen(run_worker, engine):
    """What the tenant declares mandatory after the accept counts as well."""
    choose(engine, '{"*": {"*": false}}', night())
    sql(engine, "INSERT INTO category_policy (tenant_id, name, is_mandatory) VALUES ('demo', 'test', true)")
    ids = rows.add(engine)
    sent(run_worker, engine, ids)
    assert rows.statuses(engine, ids) == {"SENT": 1}


def test_quiet_hours_hold_and_lose_nothing(run_worker, engine):
    """Held to their end and the spread, at no attempt. HIGH goes. Fails without the look before the send."""
    choose(engine, quiet_hours=night())
    ids, high = rows.add(engine, 5), rows.add(engine, priority=Priority.HIGH)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.park(ids)
        running.park(high, priority=Priority.HIGH)
        eventually(lambda: rows.statuses(engine, ids) == {"PENDING": 5})
        eventually(lambda: rows.statuses(engine, high) == {"SENT": 1})
    end = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=60)
    for id_ in ids:
        row = rows.row(engine, id_)
        assert (row["error_code"], row["attempts"]) == ("quiet_hours", 0)
        assert end - timedelta(minutes=1) <= row["next_attempt_at"] <= end + timedelta(seconds=661)
        assert row["relay_at"] == row["next_attempt_at"]
        assert provider.count(id_) == 0


def test_no_call_starts_once_quiet_hours_have_begun(run_worker, engine):
    """A message that was looked at before and had to wait for its turn is looked at again.

    Fails when the fence does not know when quiet hours begin: the call would start in them.
    """
    choose(engine, quiet_hours=night(before_minutes=-1, after_minutes=120))
    ids = rows.add(engine)
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        running.worker.start()
        lane = running.worker._open_lane
        from app.services.deliver.work import LaneKey

        key = LaneKey(Priority.LOW, Channel.SMS)
        running.worker._lanes[key] = opened = lane(key)
        passed = []
        put = opened.ready.put
        opened.ready.put = lambda work: (
            passed.extend(work),
            [setattr(w, "quiet_at", 0.0) for w in work],
            put(work),
        )
        running.park(ids)
        eventually(lambda: rows.row(engine, ids[0])["lease_token"] > 0)
        eventually(lambda: rows.row(engine, ids[0])["status"] == "PENDING")
    assert provider.calls == []
    assert rows.row(engine, ids[0])["attempts"] == 0


def test_the_look_knows_when_quiet_hours_begin(run_worker, engine):
    """What passes a minute before the night carries the moment at which it may not go any more."""
    choose(engine, quiet_hours=night(before_minutes=-2, after_minutes=120))
    ids = rows.add(engine)
    seen = []
    provider = ScriptedProvider()
    with run_worker(provider) as running:
        check = running.worker._check
        sort = check.sort

        def watched(found):
            result = sort(found)
            seen.extend(left for _, left in result.go)
            return result

        check.sort = watched
        running.park(ids)
        eventually(lambda: rows.statuses(engine, ids) == {"SENT": 1})
    assert 55 <= seen[0] <= 121


def test_what_expires_while_it_is_held_says_why(run_worker, engine):
    """Case E13. Visible as EXPIRED with quiet_hours, and never sent in the morning."""
    from app.db.recovery import EXPIRE

    choose(engine, quiet_hours=night())
    ids = rows.add(engine, expires_in=600)
    sent(run_worker, engine, ids)
    rows.change(engine, ids, expires_at="sql:now() - interval '1 s'")
    sql(engine, EXPIRE, ids=ids)
    row = rows.row(engine, ids[0])
    assert (row["status"], row["error_code"]) == ("EXPIRED", "quiet_hours")


def test_a_recipient_that_opted_out_at_the_provider_is_not_asked_again(run_worker, engine):
    """Case H03. No retry, an entry on the list, and the next message is called off without a call."""

    async def refuse(message):
        if message.recipient == TO:
            return Rejected("recipient_opted_out", "STOP")
        if message.recipient == "+447700900002":
            return Rejected("recipient_gone", "no such number", recipient_gone=True)
        return Rejected("too_long", "1601 characters") if message.recipient[-1] == "3" else Accepted("id")

    provider = ScriptedProvider(refuse)
    first = [rows.add(engine, recipient=to)[0] for to in (TO, "+447700900002", "+447700900003")]
    with run_worker(provider) as running:
        running.park(first)
        eventually(lambda: rows.statuses(engine, first) == {"FAILED": 3})
        found = "SELECT reason, source, masked, id, address FROM suppression ORDER BY reason"
        eventually(lambda: len(sql(engine, found)) == 2)
        again = rows.add(engine)
        running.park(again)
        eventually(lambda: rows.statuses(engine, again) == {"CANCELLED": 1})
    entries = sql(engine, found)
    assert [(entry[0], entry[1]) for entry in entries] == [
        ("BOUNCE", "provider:scripted"),
        ("OPT_OUT", "provider:scripted"),
    ]
    assert TO not in entries[1][2]
    place = context("suppression", "demo", "SMS", str(entries[1][3]))
    assert VAULT.open(place, bytes(entries[1][4])).decode() == TO
    assert_called_off(engine, again[0], "address_suppressed")
    assert len(provider.calls) == 3


def test_a_mail_that_one_may_do_without_carries_its_link(run_worker, engine):
    """A mandatory one carries none, and neither does a message of another channel."""
    seen: dict[str, str | None] = {}

    async def remember(message):
        seen[message.reference] = message.unsubscribe_url
        return Accepted("id")

    mail = rows.add(engine, channel=Channel.EMAIL, recipient="a@example.com")
    bound = rows.add(engine, channel=Channel.EMAIL, recipient="a@example.com")
    text = rows.add(engine)
    sql(
        engine,
        "UPDATE notification n SET category = 'security' FROM delivery d"
        " WHERE d.notification_id = n.id AND d.id = %(id)s",
        id=bound[0],
    )
    with run_worker(ScriptedProvider(remember), public_url="https://notify.example.com/") as running:
        running.park(mail + bound, channel=Channel.EMAIL)
        running.park(text)
        eventually(lambda: len(seen) == 3)
    assert (seen[bound[0]], seen[text[0]]) == (None, None)
    assert str(seen[mail[0]]).startswith("https://notify.example.com/v1/unsubscribe/")


def test_the_load_reads_primary_keys_and_nothing_else(engine):
    """However many people, devices and suppressed addresses there are. Fails when a join loses part of its key."""
    sql(
        engine,
        "INSERT INTO app_user (tenant_id, id) SELECT 'demo', 'u' || n FROM generate_series(1, 20000) n;"
        "INSERT INTO preference_set (tenant_id, user_id) SELECT 'demo', 'u' || n FROM generate_series(1, 20000) n;"
        "INSERT INTO suppression (tenant_id, channel, address_index, id, reason, source, masked, address)"
        " SELECT 'demo', 'SMS', decode(md5(n::text), 'hex'), gen_random_uuid(), 'MANUAL', 't', '*', 'x'"
        " FROM generate_series(1, 20000) n;"
        "INSERT INTO device (tenant_id, user_id, id, platform, token, token_index)"
        " SELECT 'demo', 'u' || n, gen_random_uuid(), 'IOS', 'x', decode(md5(n::text), 'hex')"
        " FROM generate_series(1, 20000) n",
    )
    ids = rows.add(engine, 200)
    day = {"low": str(day_floor(utc_today())), "high": str(day_floor(utc_today() + timedelta(days=1)))}
    with engine.connect() as connection:
        found = connection.exec_driver_sql("EXPLAIN (FORMAT JSON) " + LOAD, {"ids": ids, **day}).scalar_one()
    plan = found[0]["Plan"]
    assert "Seq Scan" not in {kind for kind, _ in scans(plan)}, scans(plan)
    conditions = looks(plan)
    assert {name: conditions[name].count(" = ") for name in ("app_user_pkey", "device_pkey")} == {
        "app_user_pkey": 2,
        "device_pkey": 3,
    }
    assert (conditions["preference_set_pkey"].count(" = "), conditions["suppression_pkey"].count(" = ")) == (2, 2)


def looks(node: dict[str, Any]) -> dict[str, str]:
    """Return the condition of each index that a plan looks into, by the name of the index."""
    here = {node["Index Name"]: node.get("Index Cond", "")} if "Index Name" in node else {}
    for child in node.get("Plans", []):
        here |= looks(child)
    return here
