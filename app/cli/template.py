"""`arauto template`: keep templates from files, and look at one before it is kept."""

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.output import WRONG, console, fail, print_json

app = typer.Typer(name="template", help="Templates from files: push, preview.", no_args_is_help=True)

Api = Annotated[str, typer.Option("--api", envvar="API_URL", help="The API; of the running stack if none.")]
Token = Annotated[str, typer.Option(envvar="ARAUTO_TOKEN", help="Bearer token; minted if none.")]
Data = Annotated[Path, typer.Option(help="Folder of the running stack.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


@app.command("push")
def push_templates(
    path: Annotated[Path, typer.Argument(help="A JSON file as PUT /v1/templates takes it, or a folder of them.")],
    api: Api = "",
    token: Token = "",
    data: Data = Path(".arauto"),
    *,
    as_json: AsJson = False,
) -> None:
    """Keep each file as the template of its name; one whose content is current already stays as it is.

    It stops at the first that cannot be kept; what was kept before stays, and the command can be repeated.

    Example: arauto template push templates/
    """
    from rich.progress import track  # noqa: PLC0415  costs 0.1 s

    from app.cli.client import find_api  # noqa: PLC0415  loads the HTTP client

    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        fail(f"no templates in {path}", "name a .json file, or a folder that has some")
    contents = [(each.stem, _read(each)) for each in files]
    server = find_api(api, token, data)
    kept = []
    for name, body in track(contents, "Pushing", console=console(stderr=True), transient=True, disable=as_json):
        answer, _ = server.call("PUT", f"/v1/templates/{quote(name, safe='')}", body)
        kept.append({"name": name, "version": answer["current_version"]})
        if not as_json:
            typer.echo(f"{name}: version {answer['current_version']}")
    if as_json:
        print_json(kept)


@app.command("preview")
def preview_template(
    file: Annotated[Path, typer.Argument(help="A JSON file as PUT /v1/templates takes it.")],
    locale: Annotated[str, typer.Option(help="The reader's language, like pt-BR.")] = "",
    zone: Annotated[str, typer.Option(help="The reader's time zone, like Europe/Lisbon.")] = "UTC",
    payload: Annotated[str, typer.Option(metavar="JSON", help="Values for the template.")] = "{}",
    *,
    api: Api = "",
    token: Token = "",
    data: Data = Path(".arauto"),
    as_json: AsJson = False,
) -> None:
    """Show what each channel would carry, and exit 1 if there is something to think about; nothing is kept.

    Example: arauto template preview order-shipped.json --locale pt-BR --payload '{"name": "Ana"}'
    """
    from app.cli.client import find_api  # noqa: PLC0415  loads the HTTP client

    body: dict[str, Any] = {"template": _content(file), "time_zone": zone, "payload": _object(payload)}
    if locale:
        body["locale"] = locale
    server = find_api(api, token, data)
    shown, _ = server.call("POST", f"/v1/templates/{quote(file.stem, safe='')}/preview", body)
    if as_json:
        print_json(shown)
    else:
        _print(shown)
    if shown["warnings"]:
        raise typer.Exit(WRONG)


def _print(shown: dict[str, Any]) -> None:
    for channel, carried in shown["channels"].items():
        typer.echo(f"{channel} ({carried['locale']})")
        for name in ("title", "body", "html"):
            if carried.get(name):
                typer.echo(f"  {name}: " + carried[name].replace("\n", "\n    "))
    for warning in shown["warnings"]:
        place = f" {warning['channel']}" if warning["channel"] else ""
        typer.echo(f"! {warning['code']}{place}: {warning['message']}")


def _content(file: Path) -> dict[str, Any]:
    return {name: value for name, value in _read(file).items() if name != "category"}


def _read(file: Path) -> dict[str, Any]:
    try:
        return _object(file.read_text(), str(file))
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", "name a .json file, or a folder that has some")


def _object(text: str, origin: str = "--payload") -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        fail(f"{origin} is not JSON: {error}", "correct it; docs/templates.md has an example")
    if not isinstance(found, dict):
        fail(f"{origin} is not a JSON object", "begin it with {; docs/templates.md has an example")
    return found
