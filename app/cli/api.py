"""`arauto api`: the HTTP API on Granian."""

import os
import sys
from pathlib import Path


def api() -> None:
    """Serve the HTTP API until told to stop, on API_HOST and API_PORT.

    API_WORKERS processes with API_THREADS threads each; start more of this command, each with its own API_PORT,
    to scale further.

    Example: arauto api
    """
    from app.settings import get_settings  # noqa: PLC0415  only a command that runs needs them

    settings = get_settings()
    options = {
        "--interface": "wsgi",
        "--host": settings.api_host,
        "--port": str(settings.api_port),
        "--workers": str(settings.api_workers),
        "--blocking-threads": str(settings.api_threads),
        "--log-level": settings.log_level.lower(),
        "--workers-kill-timeout": "10",
    }
    line = [str(Path(sys.executable).with_name("granian"))]
    for name, value in options.items():
        line += [name, value]
    line += ["--respawn-failed-workers", "--no-access-log", "--factory", "app.factory:create_app"]
    # Granian takes this process over, so that whoever started it holds the pid of the server itself.
    os.execv(line[0], line)  # noqa: S606  a fixed command line, no shell is wanted
