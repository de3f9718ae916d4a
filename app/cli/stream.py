"""`arauto stream`: live inboxes by server-sent events."""

import typer


def stream() -> None:
    """Serve live inboxes until told to stop, on STREAM_HOST and STREAM_PORT.

    One process serves STREAM_LIMIT streams; start more of this command, each with its own STREAM_PORT, to scale
    further.

    Example: arauto stream
    """
    from app.settings import get_settings  # noqa: PLC0415  only a command that runs needs them
    from app.streams import run  # noqa: PLC0415  loads an HTTP server

    raise typer.Exit(run(get_settings()))
