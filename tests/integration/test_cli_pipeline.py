"""`arauto status`, `dlq`, `doctor`, `send` and `watch`, against real servers and a real API."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import redis
from sqlalchemy.engine import Engine

from app.factory import create_app
from app.kafka.producer import Publisher, Record
from app.queues import LANES
from app.services.dead_letters import Poison
from app.settings import Settings
from app.wiring_pipeline import dead_letters
from embedded.ports import free_port
from embedded.processes import Child, Launch
from tests.integration.command_line import CommandLine
from tests.integration.rows import put
from tests.waiting import eventually

_NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def arauto(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line on the test's own servers."""
    environment = {
        "DATABASE_URL": settings.database_url,
        "REDIS_URL": settings.redis_url,
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "COLUMNS": "200",
    }
    return CommandLine(monkeypatch, capsys, environment)


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def api_url(settings: Settings) -> Iterator[str]:
    """The real application behind a small server, on the test's own database."""
    server = make_server("127.0.0.1", 0, create_app(settings), handler_class=_Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def start_celery(settings: Settings, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Start `celery -A tasks …` on the test's own servers; all of them are stopped after the test."""
    children: list[Child] = []
    environment = {
        "DATABASE_URL": settings.database_url,
        "REDIS_URL": settings.redis_url,
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
    }

    def start(arguments: str) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tasks", *arguments.split()]
        children.append(Child(Launch(command, tmp_path / f"{len(children)}.log", environment)))

    yield start
    for child in children:
        child.stop()


def test_status_counts_what_waits_at_every_hop(
    arauto: CommandLine, engine: Engine, redis_client: "redis.Redis"
) -> None:
    """Rows in each state, a Celery list and the markers show under their priority, with the age of the oldest."""
    put(engine, "PENDING", priority=0, relay_at="now() - interval '90 s'")
    put(engine, "PENDING", relay_at="now() + interval '1 h'")
    put(engine, "QUEUED", "QUEUED", priority=2, updated_at="now() - interval '10 s'")
    put(engine, "SENDING", lease_until="now() - interval '1 s'")
    put(engine, "UNKNOWN", next_attempt_at="now() + interval '1 min'")
    put(engine, "SENT", "DELIVERED")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO flow_mark SELECT 'notifications.low', p, 40 + p, now() - interval '1 h'"
            " FROM generate_series(0, 1) p"
        )
    redis_client.lpush("high", "a", "b", "c")
    found = arauto("status", "--json", "--sample", "0").json
    high, normal, low = (found["priorities"][name] for name in ("HIGH", "NORMAL", "LOW"))
    assert (high["due"], high["celery_list"]) == (1, 3)
    assert 90 <= high["due_oldest_age_seconds"] < 120
    assert (normal["due"], normal["later"]) == (0, 1)
    assert (normal["sending"], normal["sending_past_lease"]) == (1, 1)
    assert (normal["unknown"], normal["unknown_past_window"]) == (1, 0)
    assert (low["queued"], low["channels"]["queued"]) == (2, {"SMS": 2})
    assert 10 <= low["queued_oldest_age_seconds"] < 40
    assert found["states"]["NORMAL"]["SENT"] == 1
    assert found["rates"]["accepted_per_minute"] == 8
    assert found["watermarks"] == {"notifications.low": 40}
    assert found["unreachable"] == {}


def test_status_shows_the_lag_of_the_bridge_on_each_topic(arauto: CommandLine, settings: Settings) -> None:
    """Records that no bridge has passed are counted by topic, without a member joining its group."""
    assert arauto("topics").code == 0
    before = arauto("status", "--json", "--sample", "0").json["priorities"]
    topic = LANES[max(LANES)].topic
    assert Publisher(settings).publish([Record(topic, b"x") for _ in range(7)], 10.0) == [None] * 7
    after = arauto("status", "--json", "--sample", "0").json["priorities"]
    assert after["LOW"]["kafka_lag"] - before["LOW"]["kafka_lag"] == 7
    assert after["HIGH"]["kafka_lag"] == before["HIGH"]["kafka_lag"]


def test_status_for_people_fits_a_terminal(arauto: CommandLine, engine: Engine) -> None:
    """A table by hop, one by state, rates, breakers and the watermark."""
    put(engine, "PENDING", "SENT", attempts=1)
    ran = arauto("status", "--sample", "0.1")
    assert ran.code == 0
    for word in (
        "due (PENDING)",
        "Kafka lag",
        "Accepted in the last 24 h",
        "calls per minute",
        "Breakers:",
        "(W)",
    ):
        assert word in ran.out


def test_a_hop_that_does_not_answer_is_named_and_the_rest_is_shown(
    arauto: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator looks here when something is broken: one dead part hides no other."""
    put(engine, "PENDING", priority=0)
    monkeypatch.setenv("REDIS_URL", _NOWHERE)
    ran = arauto("status", "--json", "--sample", "0")
    assert ran.code == 0
    assert set(ran.json["unreachable"]) == {"redis"}
    assert ran.json["priorities"]["HIGH"]["due"] == 1
    assert ran.json["priorities"]["HIGH"]["celery_list"] is None


def test_dead_letters_are_listed_and_put_back(arauto: CommandLine, settings: Settings) -> None:
    """Case B11. What the bridge set aside shows its origin and reason, and goes back to its topic on request."""
    arauto("topics")
    topic = LANES[min(LANES)].topic
    letter = Poison(partition=0, offset=5, key=None, value=b"\xff\xfe{", reason="not JSON", tries=3)
    assert dead_letters(settings).set_aside(topic, [letter])
    (listed,) = arauto("dlq", "list", "--json").json
    assert (listed["topic"], listed["offset"], listed["reason"], listed["tries"]) == (topic, 5, "not JSON", 3)
    assert "not JSON" in arauto("dlq", "list").out
    assert arauto("dlq", "replay").code == 2
    assert arauto("dlq", "replay", "99-99", "--json").code == 1
    assert arauto("dlq", "replay", "--all", "--json").json == {"replayed": 1}
    noted = arauto("audit", "--action", "dead_letter", "--json").json["data"]
    assert [entry["resource"]["id"] for entry in noted] == ["all", "99-99"]
    assert arauto("dlq", "list", "--json").json == []


def findings(arauto: CommandLine) -> tuple[int, dict[str, dict[str, str]]]:
    ran = arauto("doctor", "--json")
    return ran.code, {finding["part"]: finding for finding in ran.json["findings"]}


def test_the_doctor_says_what_to_do_about_what_is_missing(arauto: CommandLine) -> None:
    """Without workers and with a provider that is not there, each line names the part and the next step."""
    arauto("topics")
    code, found = findings(arauto)
    assert code == 1
    assert found["postgresql"]["level"] == "ok"
    assert found["migrations"]["level"] == "ok"
    assert found["broker"]["level"] == "ok"
    assert found["transactions"]["level"] == "ok"
    assert "queue high" in found, found["workers"]
    assert found["queue high"]["then"] == "start one: celery -A tasks worker -Q high"
    assert all(finding["then"] for finding in found.values() if finding["level"] != "ok")


def test_the_doctor_survives_every_part_being_away(arauto: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that cannot be reached is a finding with advice, and no password is shown."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://arauto:hunter2@127.0.0.1:1/none")
    monkeypatch.setenv("REDIS_URL", _NOWHERE)
    monkeypatch.setenv("TRANSPORT", "direct")
    ran = arauto("doctor", "--json")
    assert ran.code == 1
    failed = {finding["part"] for finding in ran.json["findings"] if finding["level"] == "fail"}
    assert {"postgresql", "redis", "workers"} <= failed
    assert "hunter2" not in ran.out


def test_the_doctor_refuses_a_redis_that_evicts(arauto: CommandLine, redis_client: "redis.Redis") -> None:
    """Case A11. With a policy that may drop keys, messages vanish without an error: the doctor fails."""
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        code, found = findings(arauto)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert code == 1
    assert "noeviction" in found["redis"]["detail"]


def test_the_doctor_names_the_transaction_that_holds_back_vacuum(
    arauto: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C07. An old snapshot bloats the queue: backend, application and age are named, and how to end it."""
    monkeypatch.setattr("app.services.doctor._TRANSACTION_WARN_SECONDS", 0.0)
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        _, found = findings(arauto)
    assert found["transactions"]["level"] == "warn"
    assert found["transactions"]["then"] == f"end it: SELECT pg_terminate_backend({pid})"


def test_the_doctor_sees_missing_partitions_and_an_old_revision(
    arauto: CommandLine, engine: Engine, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two days ahead only is a warning long before accepting fails; no tables at all is a failure."""
    _, found = findings(arauto)
    assert found["partitions"]["level"] == "warn"
    assert arauto("migrate").code == 0
    _, found = findings(arauto)
    assert found["partitions"]["detail"] == "7 days ahead"
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    _, found = findings(arauto)
    assert found["migrations"]["then"] == "run `arauto migrate`"


def test_the_doctor_sees_rows_that_stand_still(arauto: CommandLine, engine: Engine) -> None:
    """Due for a minute, past a lease: what should have moved is named by priority."""
    put(engine, "PENDING", relay_at="now() - interval '2 min'")
    put(engine, "SENDING", priority=0, lease_until="now() - interval '1 min'")
    _, found = findings(arauto)
    assert "1 rows are due, the oldest for 1" in found["flow NORMAL"]["detail"]
    assert "1 rows are past their lease" in found["flow HIGH"]["detail"]


def test_send_makes_a_notification_over_rest(arauto: CommandLine, api_url: str) -> None:
    """The same call as a product service's: the answer is the API's, the same key repeats it."""
    arguments = ("send", "--api", api_url, "--sms", "+447700900000", "--priority", "high", "--key", "k1", "--json")
    first, second = arauto(*arguments), arauto(*arguments)
    assert first.code == 0
    assert first.json["deliveries"][0]["channel"] == "SMS"
    assert second.json == first.json


def test_send_waits_for_the_end(arauto: CommandLine, api_url: str) -> None:
    """An in-app notification has arrived when it is stored; its steps go to stderr beside --json."""
    ran = arauto("send", "--api", api_url, "--in-app", "--wait", "--json")
    assert ran.code == 0
    assert ran.json["deliveries"][0]["status"] == "DELIVERED"
    assert "IN_APP: DELIVERED" in ran.err
    watched = arauto("watch", ran.json["id"], "--api", api_url)
    assert watched.code == 0
    assert "IN_APP: DELIVERED" in watched.out


def test_what_does_not_arrive_in_time_exits_1(arauto: CommandLine, api_url: str) -> None:
    """Without workers an SMS stays PENDING: the command says so, and how to go on."""
    ran = arauto("send", "--api", api_url, "--sms", "+447700900000", "--wait", "--wait-seconds", "1")
    assert ran.code == 1
    assert "go on with: arauto watch" in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--sms", "12"), "422"),
        (("--sms", "+447700900000", "--at", "tomorrow"), "40"),
        (("--sms", "+447700900000", "--token", "nonsense"), "arauto token"),
        ((), "name one: --sms NUMBER"),
    ],
)
def test_a_refusal_is_shown_with_what_to_do(
    arauto: CommandLine, api_url: str, arguments: tuple[str, ...], says: str
) -> None:
    """The API's own words, and the next step; never a traceback."""
    ran = arauto("send", "--api", api_url, *arguments)
    assert ran.code == 2
    assert "→" in ran.err
    assert says in ran.err or says in ran.out
    assert "Traceback" not in ran.err


def test_an_api_that_is_not_there_is_explained(arauto: CommandLine) -> None:
    """How to start it, or how to name another."""
    ran = arauto("send", "--api", f"http://127.0.0.1:{free_port()}", "--sms", "+447700900000")
    assert ran.code == 2
    assert "arauto up" in ran.err


def test_a_worker_and_beat_make_the_doctor_content(
    arauto: CommandLine, settings: Settings, start_celery: Callable[[str], None]
) -> None:
    """With real workers on every queue and beat ticking, nothing of them is missing."""
    start_celery("worker -Q high,normal,low,relay -P threads -c 4 -n all@%h")
    start_celery("beat")

    def are_there() -> bool:
        _, found = findings(arauto)
        queues = [found.get(f"queue {name}", {}).get("level") for name in ("high", "normal", "low", "relay")]
        return queues == ["ok"] * 4 and found["beat"]["level"] == "ok"

    assert eventually(are_there, seconds=90, every_seconds=1)
