"""`arauto`: a command for everything that an operator does by hand.

Each module of this package holds one group of commands, and each command is thin: read the options, call one use
case, print. Nothing heavy is imported before its command runs, so that `arauto token` in a script costs little.
What a command answers goes to stdout, for people or with `--json` for scripts; logs, progress and errors go to
stderr. Exit codes: 0 done, 1 it looked and found something wrong, 2 it could not do what was asked.
"""

import typer

from app.cli import (
    api,
    audit,
    batch,
    bridge,
    dlq,
    doctor,
    errors,
    key,
    ledger,
    migrate,
    replay,
    reseal,
    send,
    stack,
    status,
    stream,
    template,
    token,
    up,
    users,
    version,
    watch,
)

app = typer.Typer(
    name="arauto",
    help="Arauto, the notification service: run it, feed it, look into it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("up")(up.up)
app.command("stack")(stack.stack)
app.command("migrate")(migrate.migrate)
app.command("topics")(bridge.topics)
app.command("api")(api.api)
app.command("bridge")(bridge.bridge)
app.command("stream")(stream.stream)
app.command("token")(token.token)
app.add_typer(key.app, name="key")
app.add_typer(template.app, name="template")
app.command("send")(send.send)
app.add_typer(batch.app, name="batch")
app.command("status")(status.status)
app.command("watch")(watch.watch)
app.command("ledger")(ledger.ledger)
app.add_typer(dlq.app, name="dlq")
app.command("replay")(replay.replay)
app.command("reseal")(reseal.reseal)
app.add_typer(users.app, name="users")
app.command("doctor")(doctor.doctor)
app.command("audit")(audit.audit)
app.command("errors")(errors.errors)
app.command("version")(version.version)


def main() -> None:
    """Run the command line; the entry point of the installed `arauto`."""
    from app.cli.output import explain  # noqa: PLC0415  only a command that runs needs it

    with explain():
        app()
