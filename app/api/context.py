"""What a request reaches of the application that serves it."""

from typing import cast

from flask import current_app

from app.wiring import ApiServices

EXTENSION = "arauto"


def services() -> ApiServices:
    """Return the use cases, as the composition root built them."""
    return cast("ApiServices", current_app.extensions[EXTENSION])
