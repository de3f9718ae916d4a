"""The progress bar of commands that take long: on stderr, and only for somebody who looks at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.cli.output import console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def progress_bar(label: str, total: float, *, quiet: bool) -> "Iterator[tuple[Progress, TaskID]]":
    """Show a bar of `total` units while the block runs; nothing when `quiet`, or where stderr is no terminal."""
    from rich.progress import (  # noqa: PLC0415  costs 0.1 s
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    out = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, disable=quiet or not out.is_terminal) as progress:
        yield progress, progress.add_task(label, total=total or None)
