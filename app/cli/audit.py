"""`arauto audit`: who did what, of one tenant or where no tenant was known."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.ledger import parse_since
from app.cli.output import console, print_json

if TYPE_CHECKING:
    from app.services.audit_log import AuditFilter, ReadAudit

_PAGE = 500


def audit(
    tenant: Annotated[str, typer.Option(help="Whose entries; none: sign-ins that failed without a tenant.")] = "",
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="From then on: 24h, 7d, or an RFC 3339 instant.")
    ] = "24h",
    action: Annotated[str, typer.Option(help="One action, api_key.created, or all of a kind, api_key.")] = "",
    actor: Annotated[str, typer.Option(help="Who did it: a subject, a key's prefix, or cli:ACCOUNT.")] = "",
    resource: Annotated[str, typer.Option(help="The id of what it was done to.")] = "",
    *,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many, newest first.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Show entries of the audit log, newest first.

    Example: arauto audit --tenant demo --since 7d --action api_key
    Example: arauto audit --since 1h --json | jq '[.data[].count] | add'
    """
    from app.cli.services import services  # noqa: PLC0415
    from app.services.audit_log import AuditFilter  # noqa: PLC0415

    wanted = AuditFilter(
        action=action or None, actor=actor or None, resource_id=resource or None, since=parse_since(since)
    )
    shown = _read(services().audit, tenant, wanted, limit)
    if as_json:
        print_json({"data": shown})
        return
    out = console()
    if not shown:
        whose = f"of tenant {tenant}" if tenant else "without a tenant"
        out.print(f"No entries {whose} since {since}.", markup=False)
        return
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"Audit log of {tenant}" if tenant else "Audit log, where no tenant was known")
    for column in ("at", "actor", "role", "action", "resource", "from", "times", "changes"):
        table.add_column(column)
    for each in shown:
        table.add_row(
            each["at"],
            each["actor"],
            each["actor_role"],
            each["action"],
            each["resource"]["id"],
            each["address"] or "",
            str(each["count"]),
            json.dumps(each["changes"], ensure_ascii=False),
        )
    out.print(table)


def _read(log: "ReadAudit", tenant: str, wanted: "AuditFilter", limit: int) -> list[dict[str, Any]]:
    from app.services.audit_log import view  # noqa: PLC0415

    shown: list[dict[str, Any]] = []
    cursor = None
    while len(shown) < limit:
        page = log.page_for_operator(tenant, wanted, min(limit - len(shown), _PAGE), cursor)
        shown += [view(row) for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    return shown
