"""`arauto send`: one notification, by the same REST call that a product service makes."""

import uuid
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import WRONG, fail, print_json


class Urgency(StrEnum):
    """The priorities, as the API names them."""

    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"


def send(
    sms: Annotated[
        str, typer.Option(metavar="NUMBER", help="Send an SMS to this number, like +447700900000.")
    ] = "",
    email: Annotated[str, typer.Option(metavar="ADDRESS", help="Send an e-mail to this address.")] = "",
    push: Annotated[str, typer.Option(metavar="TOKEN", help="Send a push to this device.")] = "",
    *,
    in_app: Annotated[bool, typer.Option("--in-app", help="Put it into the user's inbox.")] = False,
    priority: Annotated[Urgency, typer.Option(case_sensitive=False)] = Urgency.NORMAL,
    title: Annotated[str, typer.Option()] = "Hello",
    body: Annotated[str, typer.Option()] = "Sent by arauto send.",
    user: Annotated[str, typer.Option(help="The user whom it is for.")] = "cli",
    category: Annotated[str, typer.Option()] = "test",
    expires_in: Annotated[
        int, typer.Option(min=0, help="Seconds after which it is not sent any more; 0: never.")
    ] = 0,
    at: Annotated[
        str, typer.Option(metavar="INSTANT", help="Not before this instant (RFC 3339, with offset).")
    ] = "",
    key: Annotated[str, typer.Option(help="Idempotency-Key; a fresh one if none.")] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow it until it ends; exit 1 if not all arrived.")
    ] = False,
    wait_seconds: Annotated[float, typer.Option(min=1, help="How long --wait waits at most.")] = 120.0,
    api: Annotated[str, typer.Option(envvar="API_URL", help="The API; of the running stack if none.")] = "",
    token: Annotated[str, typer.Option(envvar="ARAUTO_TOKEN", help="Bearer token; minted if none.")] = "",
    data: Annotated[Path, typer.Option(help="Folder of the running stack.")] = Path(".arauto"),
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Send one notification, and with --wait follow it to its end.

    Example: arauto send --sms +447700900000 --priority HIGH --body "Your code is 123456" --wait
    """
    from app.cli.client import find_api  # noqa: PLC0415  loads the HTTP client
    from app.cli.follow import follow, summary  # noqa: PLC0415

    recipients = {"SMS": sms, "EMAIL": email, "PUSH": push}
    chosen = {channel: address for channel, address in recipients.items() if address}
    channels = [*chosen, *(["IN_APP"] if in_app else [])]
    if not channels:
        fail("nobody to send it to", "name one: --sms NUMBER, --email ADDRESS, --push TOKEN or --in-app")
    request = {
        "user_id": user,
        "category": category,
        "priority": priority.value,
        "channels": channels,
        "content": {"title": title, "body": body},
        "recipients": chosen,
        **({"expires_in": expires_in} if expires_in else {}),
        **({"scheduled_at": at} if at else {}),
    }
    server = find_api(api, token, data)
    answer, _ = server.call("POST", "/v1/notifications", request, Idempotency_Key=key or str(uuid.uuid4()))
    if not wait:
        if as_json:
            print_json(answer)
        else:
            typer.echo(summary(answer))
        return
    ended = follow(server, answer["id"], wait_seconds, quiet=as_json)
    if as_json:
        print_json(ended.notification)
    if not ended.has_arrived:
        raise typer.Exit(WRONG)
