"""`arauto key`: API keys of product services, straight in the database, where no token is at hand yet."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from app.cli.output import console, fail, print_json

if TYPE_CHECKING:
    from app.domain.callers import Caller
    from app.services.manage_keys import Issued, ManageKeys

app = typer.Typer(
    name="key", help="API keys of product services: create, list, rotate, revoke.", no_args_is_help=True
)

_NAME_LIMIT = 64
_OVERLAP_SECONDS = 86_400

Tenant = Annotated[str, typer.Option(help="Tenant whose key it is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Key = Annotated[str, typer.Argument(metavar="ID", help="Id of a key, as arauto key list shows it.")]


def _keys() -> "ManageKeys":
    from app.cli.services import services  # noqa: PLC0415

    return services().keys


def _operator(tenant: str) -> "Caller":
    from app.services.operators import operator  # noqa: PLC0415

    if not tenant or len(tenant) > 255 or not tenant.isprintable():  # noqa: PLR2004  as in a token
        fail("not a name of a tenant", "name it as its tokens do: --tenant demo")
    return operator(tenant)


@app.command("create")
def create_key(
    name: Annotated[str, typer.Option(help="Whose key it is, for people: the service that will use it.")],
    tenant: Tenant = "demo",
    scope: Annotated[
        list[str] | None, typer.Option(help="What it may do; may be repeated. Sending and reading if none.")
    ] = None,
    expires_in: Annotated[int, typer.Option(min=0, help="Lifetime in seconds; 0: until it is revoked.")] = 0,
    *,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this once: only its digest is stored.

    Example: arauto key create --tenant demo --name shop --scope notifications:write --expires-in 31536000
    """
    from app.services.manage_keys import LIFETIME_LIMIT_SECONDS  # noqa: PLC0415
    from app.services.refusal import Refused  # noqa: PLC0415
    from app.services.tokens import ALL_SCOPES  # noqa: PLC0415

    if not name.strip() or len(name) > _NAME_LIMIT or not name.isprintable():
        fail("not a name of a key", f"give 1 to {_NAME_LIMIT} visible characters: --name shop")
    if expires_in > LIFETIME_LIMIT_SECONDS:
        fail(
            f"a key lives {LIFETIME_LIMIT_SECONDS} seconds at most", "give a shorter --expires-in, or 0 for no end"
        )
    scopes = scope or ["notifications:read", "notifications:write"]
    try:
        issued = _keys().create(_operator(tenant), name, scopes, expires_in or None)
    except Refused as error:
        problems = "; ".join(each.message for each in error.problems)
        fail(f"{error.message} {problems}", f"choose from {', '.join(ALL_SCOPES)}")
    _show_issued(issued, as_json=as_json)


@app.command("list")
def list_keys(
    tenant: Tenant = "demo",
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many, newest first.")] = 100,
    *,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's keys by their prefix, with when each was last used; those that have ended too.

    Example: arauto key list --tenant demo --json | jq -r '.data[] | select(.status == "ACTIVE").prefix'
    """
    from app.services.manage_keys import view  # noqa: PLC0415

    page = _keys().page(_operator(tenant), limit)
    shown = [view(row) for row in page.rows]
    if as_json:
        print_json({"data": shown})
        return
    out = console()
    if not shown:
        out.print(f"Tenant {tenant} has no API keys.", markup=False)
        return
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"API keys of {tenant}")
    columns = ("id", "prefix", "name", "status", "scopes", "expires_at", "last_used_at")
    for column in columns:
        table.add_column(column.replace("_at", "").replace("_", " "))
    for each in shown:
        table.add_row(*(" ".join(each[c]) if c == "scopes" else each[c] or "" for c in columns))
    out.print(table)
    if page.next_cursor:
        out.print("There are more: raise --limit.")


@app.command("rotate")
def rotate_key(
    key: Key,
    tenant: Tenant = "demo",
    overlap_seconds: Annotated[int, typer.Option(min=0, help="How long the old key goes on.")] = _OVERLAP_SECONDS,
    *,
    as_json: AsJson = False,
) -> None:
    """Make a key in the place of another, with the same name, scopes and lifetime; both work for a while.

    Example: arauto key rotate 01939c5e-8f00-7abc-8def-0123456789ab --tenant demo --overlap-seconds 3600
    """
    from app.services.manage_keys import OVERLAP_LIMIT_SECONDS  # noqa: PLC0415
    from app.services.refusal import Refused  # noqa: PLC0415

    if overlap_seconds > OVERLAP_LIMIT_SECONDS:
        fail(f"an overlap lasts {OVERLAP_LIMIT_SECONDS} seconds at most", "give a shorter --overlap-seconds")
    try:
        issued = _keys().rotate(_operator(tenant), _id(key), overlap_seconds)
    except Refused as error:
        fail(error.message, f"see which keys there are: arauto key list --tenant {tenant}")
    _show_issued(issued, as_json=as_json)


@app.command("revoke")
def revoke_key(key: Key, tenant: Tenant = "demo", *, as_json: AsJson = False) -> None:
    """End a key at once, for good; servers that know it already stop within API_KEY_TRUSTED_SECONDS.

    Example: arauto key revoke 01939c5e-8f00-7abc-8def-0123456789ab --tenant demo
    """
    from app.services.manage_keys import view  # noqa: PLC0415
    from app.services.refusal import NotFound  # noqa: PLC0415

    try:
        row = _keys().revoke(_operator(tenant), _id(key))
    except NotFound as error:
        fail(error.message, f"see which keys there are: arauto key list --tenant {tenant}")
    if as_json:
        print_json(view(row))
    else:
        typer.echo(f"{row.prefix} ({row.name}) is revoked.")


def _show_issued(issued: "Issued", *, as_json: bool) -> None:
    if as_json:
        print_json(issued.view())
        return
    ends = issued.row.expires_at
    until = f"until {ends:%Y-%m-%d %H:%M} UTC" if ends else "until it is revoked"
    typer.echo(issued.text)
    typer.echo(
        f"This is shown once. Key {issued.row.id} ({issued.row.name}) may {', '.join(issued.row.scopes)} {until}.",
        err=True,
    )


def _id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        fail(f"not an id of a key: {text}", "copy it from arauto key list; the key itself is not needed")
