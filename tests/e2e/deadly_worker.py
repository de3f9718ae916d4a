"""A worker whose rendering ends its process on one body: the stand-in for a template that does."""

import os

from app import wiring_worker
from app.services.deliver.render import Render
from tasks import app

__all__ = ["app"]


class Deadly(Render):
    """Renders like the service, or dies."""

    def __call__(self, row):
        message = super().__call__(row)
        if message.body == "deadly":
            os._exit(137)
        return message


wiring_worker.Render = Deadly
