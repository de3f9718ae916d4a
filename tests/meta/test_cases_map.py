"""tests/cases.toml maps each of the 82 collected bug reports to the tests that cover it, or says why it waits."""

import ast
import re
import tomllib

from tests.meta import ROOT, name, sources_of_tests, tree

CASES = tomllib.loads((ROOT / "tests/cases.toml").read_text())["case"]
LATER = {
    "People, preferences, templates, inbox, bulk",
    "Real providers, receipts, failover",
}
COUNTS = {"A": 11, "B": 7, "C": 7, "D": 5, "E": 7, "F": 4, "G": 11, "H": 7, "I": 6, "J": 8, "K": 9}


def _nodes() -> set[str]:
    found = set()
    for path in sources_of_tests():
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"{name(path)}::{node.name}")
            if isinstance(node, ast.ClassDef):
                found |= {
                    f"{name(path)}::{node.name}::{inner.name}"
                    for inner in node.body
                    if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test_")
                }
    return found


def _named_in_docstrings() -> dict[str, set[str]]:
    named: dict[str, set[str]] = {}
    for path in sources_of_tests():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for sentence in re.findall(
                    r"\bCases? ([A-K]\d\d(?:(?:, | and |, and )[A-K]\d\d)*)", ast.get_docstring(node) or ""
                ):
                    for case in re.findall(r"[A-K]\d\d", sentence):
                        named.setdefault(case, set()).add(f"{name(path)}::{node.name}")
    return named


def test_all_cases_are_there():
    """82 of them, by section."""
    assert len(CASES) == 82
    assert {letter: sum(case.startswith(letter) for case in CASES) for letter in COUNTS} == COUNTS


def test_each_case_has_a_title_and_either_tests_or_a_reason():
    """No case is mapped to nothing; one that is partly covered may have both."""
    for case, entry in CASES.items():
        assert entry["title"], case
        assert entry.get("tests") or entry.get("waits"), case
        assert set(entry) <= {"title", "tests", "waits", "issue"}, case


def test_a_case_that_waits_names_the_issue_it_waits_for():
    """Whoever does that issue finds its cases by the title."""
    for case, entry in CASES.items():
        if "waits" in entry:
            assert entry["issue"] in LATER, case
            assert len(entry["waits"]) > 20, case
        else:
            assert "issue" not in entry, case


def test_every_test_that_the_map_names_exists():
    """A renamed test must not leave a case uncovered."""
    known = _nodes()
    missing = {node for entry in CASES.values() for node in entry.get("tests", []) if node not in known}
    assert not missing


def test_every_case_named_in_a_docstring_is_mapped_there():
    """What a test's docstring says that it covers, the map says too."""
    unmapped = {
        f"{case}: {node}"
        for case, nodes in _named_in_docstrings().items()
        for node in nodes
        if not any(node.rpartition("::")[2] == test.rpartition("::")[2] for test in CASES[case].get("tests", []))
    }
    assert not unmapped
