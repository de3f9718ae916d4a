"""`arauto token`: a bearer token for development and for scripts."""

from typing import Annotated

import typer

from app.cli.output import fail, print_json
from app.domain.callers import Role


def token(
    tenant: Annotated[str, typer.Option(help="Tenant that the token speaks for.")] = "demo",
    subject: Annotated[str, typer.Option(help="Who uses it; shown in logs.")] = "cli",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="A scope, resource:read or resource:write; may be repeated. All if none."),
    ] = None,
    role: Annotated[
        Role, typer.Option(help="USER: only the notifications of the subject. ADMIN: every scope.")
    ] = Role.SERVICE,
    expires_in: Annotated[int, typer.Option(min=1, help="Lifetime in seconds.")] = 86_400,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Print a token signed with JWT_SECRET, and nothing else. With RS256 or ES256 only the issuer makes them.

    Example: arauto token --tenant demo --subject shop --scope notifications:write --expires-in 3600
    """
    from app.services.tokens import ALL_SCOPES, NotOurTokensError, mint  # noqa: PLC0415
    from app.settings import get_settings  # noqa: PLC0415

    try:
        minted = mint(get_settings(), tenant, subject, scope or ALL_SCOPES, expires_in, role=role)
    except NotOurTokensError as error:
        fail(str(error), "get a token from the issuer, or make an API key: arauto key create")
    except ValueError as error:
        fail(str(error), "give a shorter --expires-in, or raise JWT_MAX_LIFETIME_SECONDS")
    if as_json:
        print_json(
            {"token": minted, "tenant": tenant, "subject": subject, "role": role.value, "expires_in": expires_in}
        )
    else:
        typer.echo(minted)
