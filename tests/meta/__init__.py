"""Tests of the house itself: what is written in two places is the same in both."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "tasks", "providers", "sandbox", "embedded", "migrations", "bench")


def modules(*packages: str) -> Iterator[Path]:
    """Yield every Python file of the named packages, or of all of ours but the tests."""
    for package in packages or PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def sources_of_tests() -> Iterator[Path]:
    """Yield every Python file of the tests."""
    yield from sorted((ROOT / "tests").rglob("*.py"))


def name(path: Path) -> str:
    """Return the path as it is written in the repository."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file, parsed once a run."""
    return ast.parse(path.read_text(), filename=str(path))
