"""`arauto stack`: look at single processes of a running stack, stop one, start it again."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import fail, print_json


class Action(StrEnum):
    """What to do."""

    PS = "ps"
    STOP = "stop"
    START = "start"
    RESTART = "restart"


def stack(
    action: Annotated[Action, typer.Argument(help="ps lists all; stop keeps a process down until start")],
    name: Annotated[str, typer.Argument(help="a process, as `arauto stack ps` names it")] = "",
    data: Annotated[Path, typer.Option(help="the data folder that `arauto up` was given")] = Path(".arauto"),
    wipe: Annotated[
        bool, typer.Option("--wipe", help="delete the data of kafka or valkey while it is down")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Practise failures on a stack that `arauto up` runs.

    Example: arauto stack stop kafka --wipe && arauto stack start kafka
    """
    from embedded.control import ControlError, ask  # noqa: PLC0415  loads what only a stack needs

    if action is not Action.PS and not name:
        fail("no process was named", f"try: arauto stack {action} relay, or arauto stack ps")
    try:
        answer = ask(data.resolve(), {"do": action.value, "name": name, "wipe": wipe})
    except ControlError as error:
        fail(str(error), f"see what runs there: arauto stack ps --data {data}")
    processes: list[dict[str, Any]] = answer.get("processes", [answer])
    if json_output:
        print_json(processes)
        return
    for process in processes:
        typer.echo(f"{process['name']:<14} {process['pid'] or '-':>8}  {process['state']}")
