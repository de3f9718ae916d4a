"""Runs `arauto` in this process, as its entry point does, against the servers of a test."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from app.cli import main
from app.domain import origins
from app.observability.logging import clear_context
from app.settings import get_settings


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer to --json; all of stdout must be that."""
        return json.loads(self.out)


class CommandLine:
    """Runs commands with the environment of one installation."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        environment: Mapping[str, str],
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    def __call__(self, *arguments: str) -> Ran:
        """Run `arauto` with these arguments."""
        get_settings.cache_clear()
        # A process of its own has nothing of the requests that other tests made in this one.
        clear_context()
        origins.enter(origins.NOWHERE)
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["arauto", *arguments])
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            get_settings.cache_clear()
        captured = self._capsys.readouterr()
        return Ran(code, captured.out, captured.err)
