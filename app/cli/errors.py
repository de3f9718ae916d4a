"""`arauto errors`: what each error code of the API means and what to do about it."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import fail, print_json


def errors(
    code: Annotated[str, typer.Argument(help="Only this code; all of them if none.")] = "",
    into: Annotated[
        str, typer.Option(metavar="PAGE", help="Write the table into this Markdown page, between its marks.")
    ] = "",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Explain the error codes of the API.

    Example: arauto errors DOMAIN_RATE_LIMITED
    Example: arauto errors --json | jq -r '.[] | select(.status == 422).code'
    """
    from app.domain.error_codes import CATALOGUE, with_table  # noqa: PLC0415

    if into:
        page = Path(into)
        try:
            page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
        except (OSError, ValueError) as error:
            fail(f"the table was not written: {error}", "name a page with both marks, such as docs/errors.md")
        return
    shown = [each for each in CATALOGUE.values() if code in {"", each.code}]
    if not shown:
        fail(f"there is no code {code}", "see them all: arauto errors")
    if as_json:
        print_json([each._asdict() for each in shown])
        return
    for each in shown:
        typer.echo(f"{each.code} ({each.status}): {each.when}\n  → {each.remedy}")
