"""`arauto watch`: follow one notification, or the pipeline itself."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import WRONG, print_json
from app.cli.status import live


def watch(
    notification: Annotated[
        str, typer.Argument(metavar="[ID]", help="A notification; the live rates if none.")
    ] = "",
    *,
    seconds: Annotated[float, typer.Option(min=1, help="How long a notification is followed at most.")] = 600.0,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks at the pipeline.")] = 2.0,
    api: Annotated[str, typer.Option(envvar="API_URL", help="The API; of the running stack if none.")] = "",
    token: Annotated[str, typer.Option(envvar="ARAUTO_TOKEN", help="Bearer token; minted if none.")] = "",
    data: Annotated[Path, typer.Option(help="Folder of the running stack.")] = Path(".arauto"),
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Follow a notification to its end (exit 1 if not all of it arrived), or watch the pipeline until Ctrl-C.

    Example: arauto watch 01939c5e-8f00-7abc-8def-0123456789ab
    Example: arauto watch --every 1
    """
    from app.cli.client import find_api  # noqa: PLC0415  loads the HTTP client
    from app.cli.follow import follow  # noqa: PLC0415

    if not notification:
        live(every, as_json=as_json)
        return
    ended = follow(find_api(api, token, data), notification, seconds, quiet=as_json)
    if as_json:
        print_json(ended.notification)
    if not ended.has_arrived:
        raise typer.Exit(WRONG)
