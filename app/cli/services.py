"""The use cases behind the commands, with logs that leave stdout to the answer."""

from typing import TYPE_CHECKING

from app.observability.logging import configure
from app.settings import Settings, get_settings

if TYPE_CHECKING:
    from app.wiring_operators import OperatorServices


def quiet_settings() -> Settings:
    """Return the settings, with logging on stderr set up: warnings and worse, unless LOG_LEVEL is DEBUG."""
    settings = get_settings()
    if settings.log_level != "DEBUG":
        configure(settings.model_copy(update={"log_level": "WARNING", "log_format": "console"}), process="cli")
    else:
        configure(settings, process="cli")
    return settings


def services() -> "OperatorServices":
    """Return what an operator's command uses; nothing connects before it is used."""
    from app.wiring_operators import operator_services  # noqa: PLC0415  loads every driver

    return operator_services(quiet_settings())
