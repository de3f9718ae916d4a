"""What one rendering may cost, and the errors of templates.

Python code cannot be interrupted from outside without ending its process, so nothing here waits for a watchdog:
whatever a template can do is counted before it is done, and every count looks at the clock. docs/adr/0022 has the
measurements.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

SOURCE_CHARACTERS = 65_536
NODES = 4_000
DEPTH = 40
STEPS = 20_000
CHARACTERS = 1_000_000
OUTPUT_CHARACTERS = 200_000
SECONDS = 0.5
NUMBER_BITS = 128


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a template; `line` counts from 1, 0 when it is about the whole."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class TemplateSyntaxFault(Exception):  # noqa: N818  a fault of the template, not of ours
    """A template that cannot be kept; `faults` names each reason with its line."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class RenderingError(Exception):
    """A template that gave nothing for these values. The text repeats names of the template, never a value."""

    code = "render_failed"


class LimitError(RenderingError):
    """The rendering was ended: it would have cost more than a rendering may."""

    code = "render_limit"


class Budget:
    """What is left for one rendering: steps, characters made on the way, and time.

    A step is an iteration, an operation, a call of a filter or an expression put out. Each is at most
    some hundred microseconds of work, since the texts and lists in reach are bounded, so the clock is exceeded by
    no more than that.
    """

    __slots__ = ("_characters", "_clock", "_deadline", "_steps")

    def __init__(
        self,
        *,
        steps: int = STEPS,
        characters: int = CHARACTERS,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._steps = steps
        self._characters = characters
        self._clock = clock
        self._deadline = clock() + seconds

    def spend(self, characters: int = 0) -> None:
        """Count one step and the characters that it will make; raise LimitError instead of letting it happen."""
        self._steps -= 1
        self._characters -= characters
        if self._steps < 0:
            raise LimitError(f"more than {STEPS} steps")
        if self._characters < 0:
            raise LimitError(f"more than {CHARACTERS} characters made")
        if self._clock() > self._deadline:
            raise LimitError(f"longer than {SECONDS} s")
