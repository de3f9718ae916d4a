"""Loads the Lua scripts that lie beside this module."""

from importlib.resources import files

from redis import Redis
from redis.commands.core import Script


def load(client: Redis, name: str) -> Script:
    """Return script `name`.lua, registered with `client`: EVALSHA, and the text again where it is not known."""
    return client.register_script(files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8"))
