"""`arauto dlq`: records that the bridge set aside because no try could understand them."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import WRONG, console, fail, print_json

if TYPE_CHECKING:
    from app.services.dead_letters import DeadLetters

app = typer.Typer(
    name="dlq", help="Records that the bridge set aside: list them, put them back.", no_args_is_help=True
)

_VALUE_SHOWN = 60


def _letters() -> "DeadLetters":
    from app.cli.services import quiet_settings, services  # noqa: PLC0415

    if quiet_settings().transport == "direct":
        fail("TRANSPORT=direct does without Kafka and has no dead letters", "look at FAILED rows: arauto status")
    return services().dead_letters


@app.command("list")
def list_letters(
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many, oldest first.")] = 100,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Show what waits in notifications.dlq: reason, tries and where it came from.

    Example: arauto dlq list --limit 20
    """
    letters = _letters().list(limit)
    if as_json:
        shown = [
            {**dataclasses.asdict(letter), "value": letter.value.decode(errors="backslashreplace")}
            for letter in letters
        ]
        print_json(shown)
        return
    out = console()
    if not letters:
        out.print("No dead letters.")
        return
    from rich.table import Table  # noqa: PLC0415

    table = Table(title="Dead letters")
    for name in ("id", "from", "tries", "reason", "begins with"):
        table.add_column(name)
    for letter in letters:
        origin = f"{letter.topic} {letter.partition}@{letter.offset}"
        table.add_row(
            letter.id, origin, str(letter.tries), letter.reason, ascii(letter.value[:_VALUE_SHOWN])[2:-1]
        )
    out.print(table)
    out.print("Put them back with: arauto dlq replay --all, or arauto dlq replay ID…")


@app.command("replay")
def replay_letters(
    letter: Annotated[list[str] | None, typer.Argument(help="Ids, as arauto dlq list shows them.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that wait.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Put dead letters back into the topic they came from; a delivery that is done ignores its message.

    Exit 1 if a named one does not wait there.

    Example: arauto dlq replay --all
    """
    if bool(letter) == everything:
        fail("name dead letters, or all of them", "arauto dlq replay ID…, or arauto dlq replay --all")
    from app.cli.services import services  # noqa: PLC0415
    from app.domain.audit import NO_TENANT  # noqa: PLC0415
    from app.services.audit import entry  # noqa: PLC0415
    from app.services.dead_letters import ReplayError  # noqa: PLC0415
    from app.services.operators import operator  # noqa: PLC0415

    letters = _letters()
    # Written down before it happens: a record that is back in its topic cannot be taken out again.
    for name in letter or ["all"]:
        services().note(entry(operator(NO_TENANT), "dead_letter.replayed", "dead_letter", name))
    try:
        count = letters.replay(letter or None)
    except ReplayError as error:
        fail(str(error), "see that the broker runs (arauto doctor), then run it again: repeating is harmless")
    if as_json:
        print_json({"replayed": count})
    else:
        typer.echo(f"{count} put back.")
    if letter and count < len(set(letter)):
        raise typer.Exit(WRONG)
