"""`arauto version`."""

import platform
from typing import Annotated

import typer

from app.cli.output import print_json


def version(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Print the version of Arauto and of the Python that runs it.

    Example: arauto version --json
    """
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415
    from importlib.metadata import version as installed  # noqa: PLC0415

    try:
        number = installed("arauto")
    except PackageNotFoundError:
        number = "not installed"
    if as_json:
        print_json({"arauto": number, "python": platform.python_version()})
    else:
        typer.echo(f"arauto {number} (Python {platform.python_version()})")
