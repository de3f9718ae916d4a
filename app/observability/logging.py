"""Logging: one line an event, JSON or for a console, from our own loggers and from every library's.

Events have static names and keyword fields; fields are ids, counts and durations, never an address or content
(`redaction` holds that even for exceptions). Context is bound once per request, message or task with `bound`, and
is gone when that ends, so that a thread which serves the next one does not carry it over.

Lines go to stderr: what a command prints for its caller goes to stdout alone.
"""

import logging
import sys
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, TextIO, cast

import orjson
import structlog
from structlog.contextvars import bound_contextvars, clear_contextvars, merge_contextvars
from structlog.typing import FilteringBoundLogger, Processor

from app.observability.redaction import mask, redact
from app.settings import Settings

_QUIETER: dict[str, int] = {
    "celery.worker.strategy": logging.WARNING,  # "received", once a task
    "celery.app.trace": logging.WARNING,  # "succeeded", once a task
    "celery.beat": logging.WARNING,  # "sending due task", five times a second and priority
    "alembic.runtime.plugins": logging.WARNING,
    "werkzeug": logging.WARNING,
    "asyncio": logging.WARNING,
    "tornado.access": logging.WARNING,
}


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to whatever `sys.stderr` is at that moment: a program may replace it after the start."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        raise AttributeError("the stream is always sys.stderr")


def get_logger(name: str) -> FilteringBoundLogger:
    """Return the logger of module `name`; configured by the first `configure` of the process."""
    return cast("FilteringBoundLogger", structlog.get_logger(name, module=name))


def bound(**ids: Any) -> AbstractContextManager[None]:
    """Bind `ids` to every line of this thread or task until the block ends."""
    return bound_contextvars(**ids)


def clear_context() -> None:
    """Forget what was bound; called where a request, message or task begins."""
    clear_contextvars()


def announce(event: str) -> None:
    """Log a step in the life of this process, whatever LOG_LEVEL is: supervisors and people wait for it."""
    lifecycle = logging.getLogger("arauto.lifecycle")
    lifecycle.setLevel(logging.INFO)
    lifecycle.info(event)


def configure(settings: Settings, process: str) -> None:
    """Send all logging of this process through one handler; `process` names its role in every line.

    May be called again (tests, a worker child): the handler is replaced, not doubled.
    """
    level = logging.getLevelNamesMapping()[settings.log_level]
    shared: list[Processor] = [
        merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _named(process),
        structlog.processors.format_exc_info,
        redact,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_by_name,
        cache_logger_on_first_use=False,
    )
    handler = _StandardError()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_library, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(settings)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
    for name, least in _QUIETER.items():
        logging.getLogger(name).setLevel(max(level, least) if level > logging.DEBUG else level)


def _renderer(settings: Settings) -> Processor:
    if settings.log_format == "console":
        return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    return structlog.processors.JSONRenderer(serializer=_to_json)


def _to_json(event: Any, default: Callable[[Any], Any] | None = None, **_options: Any) -> str:
    try:
        return orjson.dumps(event, default=default or str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # lone surrogates and huge integers: the line matters more than its form
        return orjson.dumps({key: ascii(value) for key, value in event.items()}).decode()


def _named(process: str) -> Processor:
    def add(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("process", process)
        return event

    return add


def _library(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Turn a library's sentence into our shape: a static event name, its sentence as a field."""
    record = event.get("_record")
    if record is not None:
        event["message"] = mask(event["event"])
        event["event"] = "library_log"
        event["module"] = record.name
    return event


def _by_name(*arguments: str) -> logging.Logger:
    return logging.getLogger(arguments[0] if arguments else "arauto")
