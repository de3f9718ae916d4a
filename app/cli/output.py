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
    from app.observability.redaction import mask_text  # noqa: PLC0415  only when something failed

    if type(error).__name__ == "DatabaseDownError" and isinstance(error.__cause__, Exception):
        error = error.__cause__  # what the request pool says about it, to an API's client, is less than is known
    line = mask_text((str(error).strip().splitlines() or [type(error).__name__])[0])
    origin = type(error).__module__.partition(".")[0]
    match origin:
        case "pydantic_core":
            advice = (
                f"a setting is not right: {_settings_problem(error)}",
                "correct it in the environment or .env",
            )
        case "sqlalchemy" | "psycopg2" if 'relation "' in line and "does not exist" in line:
            advice = (f"a table is missing: {line}", "run `arauto migrate`, then try again")
        case "sqlalchemy" | "psycopg2":
            advice = (f"PostgreSQL: {line}", "check DATABASE_URL and that the server runs: `arauto doctor`")
        case "redis" | "kombu":
            advice = (f"Redis: {line}", "check REDIS_URL, BROKER_URL and that the server runs: `arauto doctor`")
        case "cimpl" | "confluent_kafka":
            advice = (f"Kafka: {line}", "check KAFKA_BOOTSTRAP_SERVERS, or set TRANSPORT=direct: `arauto doctor`")
        case "urllib" | "http":
            advice = (f"the API did not answer: {line}", "start it with `arauto up`, or name it with --api URL")
        case _:
            return None
    return advice


def _settings_problem(error: Exception) -> str:
    from pydantic import ValidationError  # noqa: PLC0415  loaded already by whatever raised it

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])).upper() or 'together'}: {item['msg']}"
        for item in error.errors(include_input=False, include_url=False)
    )
