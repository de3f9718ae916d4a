"""A worker whose rendering ends its process on one body: the stand-in for a template that does."""

import os

from app import wiring_worker
from app.services.deliver.render import render
from tasks import app

__all__ = ["app"]


def deadly(row):
    """Render like the service, or die."""
    if row[6] == "deadly":
        os._exit(137)
    return render(row)


wiring_worker.render = deadly
