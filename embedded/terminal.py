"""What a person at the terminal sees of the stack: one line an event, and a moving line for long steps.

The terminal may go away at any moment (its window is closed); that must not stop the orderly end of the stack,
so a failing write is the end of the output and nothing else.
"""

import sys
import time
from typing import TextIO

_PROGRESS_SECONDS = 2.0


class Terminal:
    """Writes events and progress; safe when nobody listens any more."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_open = True
        self._is_moving = False
        self._progress_at = 0.0

    def event(self, name: str, text: str) -> None:
        """Write one line about one process."""
        self._write(f"{self._stamp()}  {name:<13} {text}\n")

    def progress(self, name: str, text: str) -> None:
        """Show how far a long step is: in place on a terminal, a line every 2 s elsewhere."""
        if self._stream.isatty():
            self._write(f"{self._stamp()}  {name:<13} {text[:100]}", moves=True)
        elif time.monotonic() - self._progress_at >= _PROGRESS_SECONDS:
            self._progress_at = time.monotonic()
            self.event(name, text)

    def block(self, text: str) -> None:
        """Write several lines as they are."""
        self._write(text.rstrip("\n") + "\n")

    @staticmethod
    def _stamp() -> str:
        return time.strftime("%H:%M:%S")

    def _write(self, text: str, *, moves: bool = False) -> None:
        if not self._is_open:
            return
        clear = "\r\x1b[K" if self._is_moving else ""
        self._is_moving = moves
        try:
            self._stream.write(clear + text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_open = False
