"""Logs: one JSON line an event, with ids, without anything private, from our loggers and from every library's."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from app.observability.logging import bound, clear_context, configure, get_logger
from app.settings import Settings

Lines = Callable[[], list[dict[str, Any]]]
BACKGROUND = {
    *("app.cache.courier", "app.cache.era", "app.limits.circuit", "app.services.last_use"),
    "app.services.sign_in_failures",
}
"""Modules with threads that outlive the test which started their application, and go on to log."""


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Configured logging, and a function that returns what was logged since it was last called."""
    root, handlers, level = logging.getLogger(), logging.getLogger().handlers[:], logging.getLogger().level
    configure(Settings(_env_file=None), process="relay")

    def read() -> list[dict[str, Any]]:
        captured = capsys.readouterr()
        out = [line for line in captured.out.splitlines() if not any(name in line for name in BACKGROUND)]
        assert out == [], "logs belong to stderr alone"
        said = [json.loads(line) for line in captured.err.splitlines()]
        return [line for line in said if line["module"] not in BACKGROUND]

    yield read
    clear_context()
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_event_level_time_process_module_and_fields(lines: Lines) -> None:
    """Everything a log search needs is a field of its own, and the time is UTC."""
    get_logger("app.services.relay").info("batch_published", count=3, delivery_id="0193")
    (line,) = lines()
    assert line | {"timestamp": ""} == {
        "event": "batch_published",
        "level": "info",
        "process": "relay",
        "module": "app.services.relay",
        "count": 3,
        "delivery_id": "0193",
        "timestamp": "",
    }
    assert line["timestamp"].endswith("Z")


def test_context_is_in_every_line_of_its_block_and_gone_after_it(lines: Lines) -> None:
    """What is bound for one message does not leak into the next one that the same thread serves."""
    log = get_logger("m")
    with bound(delivery_id="d1"):
        log.info("inside")
        logging.getLogger("library").warning("inside as well")
    log.info("outside")
    assert [line.get("delivery_id") for line in lines()] == ["d1", "d1", None]


def test_debug_is_silent_at_info(lines: Lines) -> None:
    """A throttled delivery is a debug line, of which there may be thousands a second."""
    get_logger("m").debug("delivery_throttled")
    logging.getLogger("library").debug("chatter")
    assert lines() == []


@pytest.mark.parametrize(
    "key", ["recipient", "recipients", "address", "body", "title", "token", "authorization", "payload", "password"]
)
def test_private_keys_are_masked_whatever_they_hold(lines: Lines, key: str) -> None:
    """Invariant 12. Fails when the redaction processor is left out of the chain."""
    get_logger("m").info("event", **{key: "private", "nested": {key: ["private"]}})
    assert "private" not in json.dumps(lines())


@pytest.mark.parametrize("key", ["lease_token", "delivery_id", "notification_id", "tenant_id", "token_count"])
def test_keys_that_only_sound_private_are_kept(lines: Lines, key: str) -> None:
    """A lease token is a number that a person needs to follow a claim."""
    get_logger("m").info("event", **{key: 7})
    assert lines()[0][key] == 7


@pytest.mark.parametrize(
    "text",
    [
        "could not send to ana.maria+x@mail.example.com now",
        "to +447700900123 failed",
        "Authorization: Bearer abcdefgh12345678",
        "token eyJhbGciOi.eyJzdWIiOiJ4.c2ln was refused",
        "postgresql://arauto:hunter2@db:5432/arauto is down",
    ],
)
def test_private_text_is_masked_in_any_field(lines: Lines, text: str) -> None:
    """An address inside a sentence of a library is as private as one under its own key."""
    get_logger("m").info("event", reason=text)
    logging.getLogger("library").error("says: %s", text)
    written = json.dumps(lines())
    for part in ("ana.maria", "447700900123", "abcdefgh12345678", "eyJhbGciOi", "hunter2"):
        assert part not in written
    assert "[redacted]" in written


def test_an_exception_is_shown_without_the_row_that_the_driver_quotes(lines: Lines) -> None:
    """PostgreSQL quotes the failing row, with address and content, in the message of a constraint violation."""
    message = (
        'violates constraint "ck"\nDETAIL:  Failing row contains (0193, demo, Your code is 424242,\nline two).\n'
        "CONTEXT:  while inserting"
    )

    def insert() -> None:
        raise ValueError(message)

    try:
        insert()
    except ValueError:
        get_logger("m").exception("insert_failed")
    (line,) = lines()
    assert "ValueError" in line["exception"]
    assert "CONTEXT:  while inserting" in line["exception"]
    assert "424242" not in line["exception"]
    assert "line two" not in line["exception"]


def test_a_value_that_is_no_json_does_not_lose_its_line(lines: Lines) -> None:
    """Lone surrogates, bytes and objects are written in some form: the line matters more than the form."""
    get_logger("m").info("event", odd="\ud83d", raw=b"\x00\x01", thing=ValueError("x"))
    (line,) = lines()
    assert line["event"]


def test_libraries_are_quieter_than_we_are(lines: Lines) -> None:
    """Celery writes two lines a task at info: at thousands of tasks a second they would drown ours."""
    logging.getLogger("celery.app.trace").info("Task succeeded")
    logging.getLogger("celery.worker").info("ready")
    assert [line["module"] for line in lines()] == ["celery.worker"]


def test_configuring_twice_does_not_double_the_lines(lines: Lines) -> None:
    """A worker child configures again."""
    configure(Settings(_env_file=None), process="child")
    get_logger("m").info("once")
    assert [line["process"] for line in lines()] == ["child"]
