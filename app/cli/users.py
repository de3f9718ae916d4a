"""`arauto users`: a file of users into the service."""

import json
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import WRONG, fail, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.domain.user_files import Row, UserFile

app = typer.Typer(name="users", help="Users of a tenant: import them from a file.", no_args_is_help=True)

_BATCH = 500
_BATCH_LIMIT = 1000
_CSV_ENDINGS = {".csv", ".tsv", ".txt"}
_NDJSON_ENDINGS = {".ndjson", ".jsonl"}


class Form(StrEnum):
    """How a file is written."""

    AUTO = "auto"
    CSV = "csv"
    NDJSON = "ndjson"


@app.command("import")
def import_users(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV with a line of columns, or NDJSON; in UTF-8.")],
    *,
    form: Annotated[Form, typer.Option("--format", help="By the file's ending unless said.")] = Form.AUTO,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="COLUMN=FIELD", help="Take a column as a field; may be repeated."),
    ] = None,
    delimiter: Annotated[str, typer.Option(help="Between cells; by the first line if none.")] = "",
    region: Annotated[
        str, typer.Option(metavar="DE", help="Read national phone numbers as of this country.")
    ] = "",
    batch: Annotated[int, typer.Option(min=1, max=_BATCH_LIMIT, help="Users in one request.")] = _BATCH,
    rejects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write rejected rows here as NDJSON, and not to stderr.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run was stopped.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the place is kept; beside the file if none.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every row here, and send nothing.")] = False,
    patience: Annotated[float, typer.Option(min=0, help="Seconds to wait for a busy API, a batch.")] = 300.0,
    api: Annotated[str, typer.Option(envvar="API_URL", help="The API; of the running stack if none.")] = "",
    token: Annotated[str, typer.Option(envvar="ARAUTO_TOKEN", help="Bearer token; minted if none.")] = "",
    data: Annotated[Path, typer.Option(help="Folder of the running stack.")] = Path(".arauto"),
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Create and change users from a file: what a row leaves out stays as it is.

    Columns are id, status, email, phone, region, locale, time_zone, last_seen_at, attributes (JSON) and
    attributes.NAME. Rows that cannot be stored are told with their line and their reason; exit 1 if there are any.
    A run that was stopped goes on with --resume.

    Example: arauto users import users.csv --map Mail=email --map Note= --rejects rejects.ndjson
    """
    from app.cli.client import find_api  # noqa: PLC0415
    from app.cli.progress import progress_bar  # noqa: PLC0415
    from app.cli.users_import import Checkpoint, Import, Progress, Upload, identity_of  # noqa: PLC0415
    from app.domain.user_files import UnreadableFileError  # noqa: PLC0415

    if not file.is_file():
        fail(f"there is no file {file}", "name a file that can be read")
    kept = Checkpoint(checkpoint or file.with_name(f"{file.name}.checkpoint"))
    start = Progress(identity_of(file))
    if resume and not dry_run:
        start = kept.read(start.identity) or start
    resumed_from = start.rows
    with ExitStack() as closing:
        source = _open(closing, file, form, columns or [], delimiter)
        bar, bar_task = closing.enter_context(progress_bar(file.name, file.stat().st_size, quiet=as_json))
        upload = _check if dry_run else Upload(find_api(api, token, data), patience, bar.console.print)

        def done(progress: Progress) -> None:
            bar.update(bar_task, completed=source.bytes_read)
            if not dry_run:
                kept.write(progress)

        run = Import(source, upload, _rejections(closing, rejects, again=resumed_from > 0), done, batch, region)
        try:
            end = run.run(start)
        except UnreadableFileError as error:
            fail(f"{file}: {error}", error.advice)
    if not dry_run:
        kept.remove()
    counts = {name: getattr(end, name) for name in ("rows", "created", "updated", "rejected")}
    if as_json:
        print_json({"file": str(file), "dry_run": dry_run, "resumed_from": resumed_from} | counts)
    elif dry_run:
        typer.echo(f"{end.rows:,} rows: {end.rows - end.rejected:,} can be stored, {end.rejected:,} cannot.")
    else:
        typer.echo(
            "{rows:,} rows: {created:,} created, {updated:,} updated, {rejected:,} rejected.".format(**counts)
        )
    if end.rejected:
        raise typer.Exit(WRONG)


def _open(closing: ExitStack, file: Path, form: Form, columns: list[str], delimiter: str) -> "UserFile":
    from app.domain.user_files import UserFile  # noqa: PLC0415

    ending = file.suffix.lower()
    if form is Form.AUTO and ending not in _CSV_ENDINGS | _NDJSON_ENDINGS:
        fail(
            f"the ending of {file.name} does not say how it is written", "say it: --format csv or --format ndjson"
        )
    if len(delimiter) > 1:
        fail("a delimiter is one character", "give one, like --delimiter ';'")
    pairs = [column.rpartition("=") for column in columns]
    if any(not equals or not column for column, equals, _ in pairs):
        fail("not a mapping of a column", "write --map COLUMN=FIELD, or --map COLUMN= to leave the column out")
    is_csv = form is Form.CSV or (form is Form.AUTO and ending in _CSV_ENDINGS)
    renamed = {column: field for column, _, field in pairs}
    opened = closing.enter_context(file.open("rb"))
    return UserFile(opened, is_csv=is_csv, renamed=renamed, delimiter=delimiter or None)


def _rejections(closing: ExitStack, path: Path | None, *, again: bool) -> "Callable[[Row, str], None]":
    """Return what tells of a rejected row. Reasons name fields and never repeat what is in them."""
    if path is None:
        return lambda row, why: typer.echo(f"line {row.line}: {_named(row)}{why}", err=True)
    out = closing.enter_context(path.open("a" if again else "w", encoding="utf-8"))

    def write(row: "Row", why: str) -> None:
        out.write(json.dumps({"line": row.line, "id": row.id, "reason": why}, ensure_ascii=False) + "\n")
        out.flush()

    return write


def _named(row: "Row") -> str:
    return f"user {row.id!r}: " if row.id is not None else ""


def _check(users: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the API would say of users, as far as that can be told without its database."""
    from app.api.errors import ApiError  # noqa: PLC0415  loads the web framework
    from app.api.user_schemas import parse_row, reason  # noqa: PLC0415
    from app.services.refusal import Refused  # noqa: PLC0415

    results: list[dict[str, Any]] = []
    for user in users:
        try:
            parse_row(user)
        except (ApiError, Refused) as error:
            results.append({"status": "rejected", "error": reason(error)})
        else:
            results.append({"status": "created", "error": None})
    return results
