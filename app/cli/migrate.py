"""`arauto migrate`: the tables, and the partitions of the next days."""

from typing import Annotated

import typer

from app.cli.output import fail, print_json


def migrate(
    down: Annotated[
        str, typer.Option(metavar="REVISION", help="Go back to this revision; `base` drops every table.")
    ] = "",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a --down.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Bring the database to the newest revision and make the partitions of the next days.

    Safe to run from many machines at once: they take turns. A table that stays locked for 5 s makes it give up
    with nothing half done, instead of holding up traffic.

    Example: arauto migrate
    Example: arauto migrate --down base --yes
    """
    from app.cli.services import services  # noqa: PLC0415
    from app.services.migrate import MigrationBlockedError  # noqa: PLC0415

    steps = services().migrate
    if down and not yes:
        typer.confirm(f"Go back to revision {down}? Tables of later revisions are dropped", abort=True)
    try:
        result = steps.down(down) if down else steps.up()
    except MigrationBlockedError as error:
        fail(
            str(error), "find who holds the lock (`arauto doctor` names the oldest transaction), then run it again"
        )
    if as_json:
        print_json({"revision": result.revision, "partitions_made": result.partitions_made})
    else:
        made = f"; {result.partitions_made} partitions made" if result.partitions_made else ""
        typer.echo(f"The database is at revision {result.revision}{made}.")
