"""The lock files: complete, hashed, naming no address."""

import re
import tomllib

import pytest

from tests.meta import ROOT

LOCKS = ("build.txt", "dev.txt", "run.txt", "service.txt")


def _pinned(lock: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / lock).read_text().splitlines()
    return {
        match[1].lower().replace("_", "-"): match[2]
        for line in lines
        if (match := re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;]+)", line))
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_and_hashed(lock):
    """`pip install --require-hashes` refuses a file in which one line lacks its hash; so does this test."""
    text = (ROOT / "requirements" / lock).read_text().replace("\\\n", " ")
    for line in filter(None, (line.strip() for line in text.splitlines())):
        assert re.match(r"[A-Za-z0-9_.\[\]-]+==\S+", line), line
        assert "--hash=sha256:" in line, line


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_file_names_an_address(lock):
    """Where packages come from is the machine's choice, not the repository's."""
    text = (ROOT / "requirements" / lock).read_text()
    assert "://" not in text
    assert "index-url" not in text
    assert "find-links" not in text


def test_the_lock_files_agree():
    """What runs is what was tested: a package has one version in all lock files."""
    development = _pinned("dev.txt")
    for lock in ("run.txt", "service.txt"):
        pinned = _pinned(lock)
        assert pinned.items() <= development.items(), f"{lock} differs from dev.txt: run `make lock`"


def test_every_declared_dependency_is_locked():
    """A dependency added to pyproject.toml without `make lock` would be missing from a fresh machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["embedded"]]
    names = {re.split(r"[\[<>=!~ ;]", item, maxsplit=1)[0].lower().replace("_", "-") for item in wanted}
    assert names <= set(_pinned("run.txt"))
    extras = {
        re.split(r"[\[<>=!~ ;]", item, maxsplit=1)[0].lower() for item in project["optional-dependencies"]["dev"]
    }
    assert extras <= set(_pinned("dev.txt"))
