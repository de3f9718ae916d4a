"""What a batch says and what one recipient adds to it, put together."""

from collections.abc import Mapping
from typing import Any


def with_shared(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole of what a notification of a batch says. Of two values in a payload the own one counts."""
    said = {**shared, **own}
    if "payload" in shared and "payload" in own:
        said["payload"] = {**shared["payload"], **own["payload"]}
    return said
