"""The composition root: settings in, built use cases out. Nothing else constructs engines, producers or services.

Everything is built on first use and once per process id, so that importing costs nothing and a forked child never
shares a socket or a library thread with its parent.
"""

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import TypeVar

from app.settings import Settings

Built = TypeVar("Built")
_LOCK = RLock()


def once_per_process(build: Callable[[Settings], Built]) -> Callable[[Settings], Built]:
    """Return `build` remembered per process id and settings; threads that race wait for the first."""
    built: dict[tuple[int, Settings], Built] = {}

    @wraps(build)
    def cached(settings: Settings) -> Built:
        key = (os.getpid(), settings)
        with _LOCK:
            if key not in built:
                built[key] = build(settings)
            return built[key]

    return cached
