"""Waiting on a condition, with an end: the only way a test lets time pass."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], *, seconds: float = 10.0, every_seconds: float = 0.02, why: str = ""
) -> T:
    """Return the first truthy answer of `condition`; fail with its last answer when the time is over.

    An AssertionError inside the condition counts as "not yet" and is shown when the time is over.
    """
    until = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        last: object
        try:
            answer = condition()
        except AssertionError as error:
            last = error
        else:
            if answer:
                return answer
            last = answer
        if time.monotonic() >= until:
            raise AssertionError(f"not within {seconds} s{': ' + why if why else ''}; last seen: {last!r}")
        pause.wait(every_seconds)


def never(condition: Callable[[], object], *, seconds: float, every_seconds: float = 0.02) -> None:
    """Fail as soon as `condition` is truthy; return when it stayed falsy for the whole time."""
    until = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < until:
        answer = condition()
        assert not answer, f"happened though it must not: {answer!r}"
        pause.wait(every_seconds)
