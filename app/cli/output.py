"""How every command speaks: answers to stdout, the rest to stderr, and an error says what to do next."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

WRONG = 1
IMPOSSIBLE = 2


def console(*, stderr: bool = False) -> "Console":
    """Return a Rich console; on anything but a terminal its output is plain text of unlimited width."""
    from rich.console import Console  # noqa: PLC0415  costs 0.1 s, and `token` does not need it

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, soft_wrap=not stream.isatty())


def print_json(value: Any) -> None:
    """Print `value` as indented JSON with instants in RFC 3339."""
    typer.echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def fail(problem: str, then: str) -> NoReturn:
    """End the command with exit code 2: `problem` is what went wrong, `then` what to do next."""
    typer.echo(f"arauto: {problem}\n  → {then}", err=True)
    raise typer.Exit(IMPOSSIBLE)


@contextmanager
def explain() -> Iterator[None]:
    """Turn the failures that an operator can meet into a sentence and an advice, instead of a traceback."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
    except Exception as error:
        advice = advise(error)
        if advice is None:
            raise
        typer.echo(f"arauto: {advice[0]}\n  → {advice[1]}", err=True)
        sys.exit(IMPOSSIBLE)


def advise(error: Exception) -> tuple[str, str] | None:
    """Return what happened and what to do next, or None for a surprise that deserves its traceback."""
    from pydantic import ValidationError  # noqa: PLC0415  already loaded by whatever could raise it

    if isinstance(error, ValidationError):
        fields = "; ".join(
            f"{'.'.join(map(str, item['loc'])).upper() or 'settings'}: {item['msg']}" for item in error.errors()
        )
        return f"a setting is not right: {fields}", "correct it in the environment or in .env (see .env.example)"
    origin = type(error).__module__.partition(".")[0]
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    from app.observability.redaction import mask_text  # noqa: PLC0415  only when something failed

    first_line = mask_text(first_line)
    if origin in {"sqlalchemy", "psycopg2"}:
        if 'relation "' in first_line and "does not exist" in first_line:
            return f"a table is missing: {first_line}", "run `arauto migrate`, then try again"
        return f"PostgreSQL: {first_line}", "check DATABASE_URL and that the server runs: `arauto doctor`"
    if origin == "redis":
        return f"Redis: {first_line}", "check REDIS_URL (and BROKER_URL) and that the server runs: `arauto doctor`"
    if origin in {"cimpl", "confluent_kafka"}:
        return (
            f"Kafka: {first_line}",
            "check KAFKA_BOOTSTRAP_SERVERS and that a broker runs: `arauto doctor`; "
            "without Kafka, set TRANSPORT=direct",
        )
    if origin in {"urllib", "http"} or isinstance(error, ConnectionError):
        return f"the API did not answer: {first_line}", "start it with `arauto up`, or name it with --api URL"
    return None
