"""`arauto batch`: one message to many people, by the same REST calls that a product service makes."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import WRONG, console, fail, print_json

if TYPE_CHECKING:
    from app.cli.client import Api

app = typer.Typer(
    name="batch",
    help="One message to many people: send, status, pause, resume, cancel, recall, errors.",
    no_args_is_help=True,
)

_PATH = "/v1/notifications/batch"
_POLL_SECONDS = 0.5
_STANDING = frozenset({"COMPLETED", "CANCELLED", "FAILED", "PAUSED"})

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a batch, as arauto batch send prints it.")]
Url = Annotated[str, typer.Option("--api", envvar="API_URL", help="The API; of the running stack if none.")]
Token = Annotated[str, typer.Option(envvar="ARAUTO_TOKEN", help="Bearer token or API key; minted if none.")]
Data = Annotated[Path, typer.Option(help="Folder of the running stack.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
_DATA = Path(".arauto")


class ChannelChoice(StrEnum):
    """The channels, as the API names them."""

    PUSH = "PUSH"
    EMAIL = "EMAIL"
    SMS = "SMS"
    IN_APP = "IN_APP"


class Urgency(StrEnum):
    """The priorities, as the API names them."""

    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"


@app.command("send")
def send(
    file: Annotated[
        Path | None,
        typer.Argument(
            exists=True, dir_okay=False, help="Whom to: CSV with a column user_id, or NDJSON. None with --segment."
        ),
    ] = None,
    *,
    channel: Annotated[
        list[ChannelChoice], typer.Option(case_sensitive=False, help="Over which channel; may be repeated.")
    ],
    template: Annotated[str, typer.Option(help="Name of the template; other columns are its values.")] = "",
    title: Annotated[str, typer.Option(help="Without a template: the title.")] = "",
    body: Annotated[str, typer.Option(help="Without a template: the text.")] = "",
    category: Annotated[str, typer.Option()] = "marketing",
    priority: Annotated[Urgency, typer.Option(case_sensitive=False)] = Urgency.LOW,
    segment: Annotated[
        str, typer.Option(metavar="JSON", help='Whom to, as a filter: \'{"locales": ["pt"]}\'.')
    ] = "",
    canary: Annotated[str, typer.Option(metavar="N or N%", help="How many go first.")] = "",
    canary_failures: Annotated[
        float, typer.Option(min=0, max=1, help="A greater share of failures among them stops the rest.")
    ] = 0.05,
    canary_wait: Annotated[int, typer.Option(min=0, help="Seconds until they are looked at.")] = 300,
    at: Annotated[str, typer.Option(metavar="INSTANT", help="Not before this instant (RFC 3339).")] = "",
    expires_in: Annotated[int, typer.Option(min=0, help="Seconds after which nothing is sent; 0: never.")] = 0,
    key: Annotated[
        str, typer.Option(help="Idempotency-Key; if none, one of file and message: the same is not sent twice.")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow the expansion to its end.")] = False,
    api: Url = "",
    token: Token = "",
    data: Data = _DATA,
    as_json: AsJson = False,
) -> None:
    """Send one message to everybody in a file, or in a segment. Called again, it goes on where it stopped.

    Example: arauto batch send users.csv --channel EMAIL --title "Sale" --body "Until Sunday" --canary 5%
    """
    from app.cli.batch_upload import digest_of  # noqa: PLC0415
    from app.cli.client import find_api  # noqa: PLC0415  loads the HTTP client

    if (file is None) == (not segment):
        fail("whom to send it to is not clear", "name a file of recipients, or --segment JSON, one of them")
    if bool(template) == bool(body or title):
        fail("what to send is not clear", "give --template NAME, or --title and --body")
    request: dict[str, Any] = {
        "category": category,
        "priority": priority.value,
        "channels": [each.value for each in channel],
        **({"template": template} if template else {"content": {"title": title, "body": body}}),
        **({"scheduled_at": at} if at else {}),
        **({"expires_in": expires_in} if expires_in else {}),
        **({"canary": _canary(canary, canary_failures, canary_wait)} if canary else {}),
    }
    if file is None:
        request["segment"] = _object(segment)
    else:
        request["upload"] = {"format": "ndjson" if file.suffix in {".ndjson", ".jsonl"} else "csv"}
    if not key:
        import hashlib  # noqa: PLC0415

        said = json.dumps(request, sort_keys=True) + ("" if file is None else digest_of(file))
        key = f"arauto-batch-{hashlib.sha256(said.encode()).hexdigest()[:40]}"
    server = find_api(api, token, data)
    accepted, headers = server.call("POST", _PATH, request, Idempotency_Key=key)
    identifier = accepted["id"]
    if "idempotency-replayed" in headers:
        typer.echo(f"Going on with batch {identifier}; for a new one give another --key.", err=True)
    if file is not None:
        _upload(server, identifier, file, quiet=as_json)
    shown = _follow(server, identifier, quiet=as_json) if wait else _read(server, identifier)
    _show(shown, as_json=as_json)
    if wait and shown["state"] != "COMPLETED":
        raise typer.Exit(WRONG)


@app.command("status")
def status(batch: Id, api: Url = "", token: Token = "", data: Data = _DATA, *, as_json: AsJson = False) -> None:
    """Show how far a batch is, and what became of its deliveries.

    Example: arauto batch status 01939c5e-8f00-7abc-8def-0123456789ab
    """
    from app.cli.client import find_api  # noqa: PLC0415

    _show(_read(find_api(api, token, data), batch), as_json=as_json)


@app.command("pause")
def pause(batch: Id, api: Url = "", token: Token = "", data: Data = _DATA, *, as_json: AsJson = False) -> None:
    """Make no more notifications of a batch until it is resumed; those that are made are sent.

    Example: arauto batch pause 01939c5e-8f00-7abc-8def-0123456789ab
    """
    _change("pause", batch, api, token, data, as_json=as_json)


@app.command("resume")
def resume(batch: Id, api: Url = "", token: Token = "", data: Data = _DATA, *, as_json: AsJson = False) -> None:
    """Go on with a paused batch, also with one that its canary has stopped.

    Example: arauto batch resume 01939c5e-8f00-7abc-8def-0123456789ab
    """
    _change("resume", batch, api, token, data, as_json=as_json)


@app.command("cancel")
def cancel(batch: Id, api: Url = "", token: Token = "", data: Data = _DATA, *, as_json: AsJson = False) -> None:
    """Call off a batch that has not ended: it makes and sends no more.

    Example: arauto batch cancel 01939c5e-8f00-7abc-8def-0123456789ab
    """
    _change("cancel", batch, api, token, data, as_json=as_json)


@app.command("recall")
def recall(batch: Id, api: Url = "", token: Token = "", data: Data = _DATA, *, as_json: AsJson = False) -> None:
    """Call off what of a batch has not been sent yet, also when it has ended.

    Example: arauto batch recall 01939c5e-8f00-7abc-8def-0123456789ab
    """
    _change("recall", batch, api, token, data, as_json=as_json)


@app.command("errors")
def errors(
    batch: Id,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV that a spreadsheet can open safely.")] = False,
    api: Url = "",
    token: Token = "",
    data: Data = _DATA,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the rows that made no notification, a line each, as NDJSON or CSV.

    Example: arauto batch errors 01939c5e-8f00-7abc-8def-0123456789ab --csv > rejected.csv
    """
    from urllib.error import HTTPError  # noqa: PLC0415

    from app.cli.client import find_api  # noqa: PLC0415

    server = find_api(api, token, data)
    form = "csv" if as_csv and not as_json else "ndjson"
    path, more = f"{_PATH}/{batch}/errors?format={form}&limit=10000", ""
    while True:
        try:
            lines, headers = server.ask_raw("GET", path + more)
        except HTTPError as error:
            server.give_up(error)
        typer.echo(lines.decode(), nl=False)
        if "next-cursor" not in headers:
            return
        more = f"&cursor={headers['next-cursor']}"


def _upload(server: "Api", identifier: str, file: Path, *, quiet: bool) -> None:
    from app.cli.batch_upload import upload  # noqa: PLC0415
    from app.cli.progress import progress_bar  # noqa: PLC0415

    found = _read(server, identifier)
    if found["state"] != "UPLOADING":
        return
    offset = found["upload"]["next_offset"]
    with progress_bar("Uploading", file.stat().st_size, quiet=quiet) as (progress, task):
        progress.update(task, completed=offset)
        upload(server, identifier, file, offset, lambda sent: progress.update(task, completed=sent))
    server.call("POST", f"{_PATH}/{identifier}/start")


def _follow(server: "Api", identifier: str, *, quiet: bool) -> dict[str, Any]:
    from app.cli.progress import progress_bar  # noqa: PLC0415

    with progress_bar("Expanding", 0, quiet=quiet) as (progress, task):
        while True:
            found = _read(server, identifier)
            progress.update(task, completed=found["progress"]["read"], total=found["progress"]["total"])
            if found["state"] in _STANDING:
                return found
            time.sleep(_POLL_SECONDS)


def _change(verb: str, batch: str, api: str, token: str, data: Path, *, as_json: bool) -> None:
    from app.cli.client import find_api  # noqa: PLC0415

    shown, _ = find_api(api, token, data).call("POST", f"{_PATH}/{batch}/{verb}")
    _show(shown, as_json=as_json)


def _read(server: "Api", identifier: str) -> dict[str, Any]:
    found, _ = server.call("GET", f"{_PATH}/{identifier}")
    return dict(found)


def _show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    done, sent = found["progress"], found["deliveries"]
    why = f" ({found['reason']})" if found["reason"] else ""
    of = "" if done["total"] is None else f" of {done['total']:,}"
    out = console()
    out.print(f"{found['id']} {found['state']}{why}", markup=False)
    out.print(f"  read {done['read']:,}{of}: {done['notifications']:,} made, {done['rejected']:,} rejected")
    if done["seconds_left"] is not None:
        out.print(f"  {done['rows_per_second']:,.0f} rows/s, {done['seconds_left']:,} s left")
    for reason, count in done["suppressed"].items():
        out.print(f"  not sent, {reason}: {count:,}", markup=False)
    counts = ", ".join(f"{name} {sent[name]:,}" for name in sent if name not in {"total", "counted_at"})
    out.print(f"  {sent['total']:,} deliveries: {counts}")
    if done["rejected"]:
        out.print(f"  why rows were rejected: arauto batch errors {found['id']}")


def _canary(text: str, failures: float, wait: int) -> dict[str, Any]:
    try:
        size: dict[str, Any] = (
            {"percent": float(text[:-1])} if text.endswith("%") else {"count": int(text.replace(",", ""))}
        )
    except ValueError:
        fail(f"not a size of a canary: {text}", "write how many, or which share: --canary 500, --canary 5%")
    return {**size, "max_failure_rate": failures, "wait_seconds": wait}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        fail("not a segment", 'write it as an object in JSON: --segment \'{"locales": ["pt"]}\'')
    return found
