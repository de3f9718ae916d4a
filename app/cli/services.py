"""The use cases behind the commands, with logs that leave stdout to the answer.

An operator's command looks at the servers that the settings name. Where they name none and a stack runs in this
folder, it looks at the servers of that stack, as `arauto send` does.
"""

from typing import TYPE_CHECKING

from app.cli.client import STACK, running_stack
from app.cli.output import console
from app.observability.logging import configure
from app.settings import Settings, get_settings

if TYPE_CHECKING:
    from app.wiring_operators import OperatorServices


_SERVERS = {
    "database_url": "database_url",
    "redis_url": "redis_url",
    "kafka_bootstrap_servers": "kafka_bootstrap",
}


def meant(settings: Settings) -> Settings:
    """Return `settings`, with the addresses of the stack in this folder where they name no server at all."""
    stack = running_stack(STACK)
    if not stack or settings.model_fields_set & set(_SERVERS):
        return settings
    console(stderr=True).print(f"The stack in {STACK}", style="dim")
    addresses = {name: stack[known] for name, known in _SERVERS.items() if stack.get(known)}
    if stack.get("broker") == "direct":
        addresses["transport"] = "direct"
    return settings.model_copy(update=addresses)


def quiet_settings() -> Settings:
    """Return the settings, with logging on stderr set up: warnings and worse, unless LOG_LEVEL is DEBUG."""
    settings = meant(get_settings())
    if settings.log_level != "DEBUG":
        configure(settings.model_copy(update={"log_level": "WARNING", "log_format": "console"}), process="cli")
    else:
        configure(settings, process="cli")
    return settings


def services() -> "OperatorServices":
    """Return what an operator's command uses; nothing connects before it is used."""
    from app.wiring_operators import operator_services  # noqa: PLC0415  loads every driver

    return operator_services(quiet_settings())
