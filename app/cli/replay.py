"""`arauto replay`: send FAILED deliveries again."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from app.cli.ledger import parse_since
from app.cli.output import WRONG, console, fail, print_json

if TYPE_CHECKING:
    from app.services.replay import Replay, Replayed

_SHOWN = 20


def replay(
    delivery: Annotated[list[str] | None, typer.Argument(help="Ids of deliveries that FAILED.")] = None,
    error_code: Annotated[str, typer.Option(help="All that FAILED with this code, as the API shows it.")] = "",
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="With --error-code: accepted since then (24h, 7d, or an instant).")
    ] = "24h",
    tenant: Annotated[str, typer.Option(help="With --error-code: only this tenant.")] = "",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="With --error-code: do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Make FAILED deliveries PENDING again, with fresh attempts; exit 1 if one of the named could not be.

    What has expired stays FAILED. What failed as `uncertain` may have been delivered already: replaying it can
    send it twice.

    Example: arauto replay 01939c5e-8f00-7abc-8def-0123456789ab
    Example: arauto replay --error-code misconfigured --since 2h --yes
    """
    if bool(delivery) == bool(error_code):
        fail("name deliveries or an error code", "arauto replay ID…, or arauto replay --error-code CODE")
    from app.cli.services import services  # noqa: PLC0415

    use_case = services().replay
    if delivery:
        result = use_case.by_id([_id(text) for text in delivery])
    else:
        if not yes:
            typer.confirm(f"Send again all that FAILED with {error_code} in the last {since}", abort=True)
        result = _by_code(use_case, error_code, since, tenant, hidden=as_json)
    if as_json:
        print_json({"replayed": result.replayed, "refused": result.refused})
    else:
        typer.echo(f"{len(result.replayed)} will be sent again, {len(result.refused)} not.")
        for identifier, reason in list(result.refused.items())[:_SHOWN]:
            typer.echo(f"  {identifier}: {reason}")
    if delivery and result.refused:
        raise typer.Exit(WRONG)


def _by_code(use_case: "Replay", code: str, since: str, tenant: str, *, hidden: bool) -> "Replayed":
    from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,}"))
    with Progress(*columns, console=console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("Replaying", total=None)
        return use_case.by_error_code(
            code,
            since=parse_since(since),
            tenant_id=tenant or None,
            progress=lambda done: bar.update(task, completed=done),
        )


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        fail(f"not an id of a delivery: {text}", "copy it from GET /v1/notifications/{id} or from arauto ledger")
