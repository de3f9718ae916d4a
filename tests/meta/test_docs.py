"""Pages that name things of the code name ones that exist, and all of them."""

import ast
import re

import pytest
from typer.main import get_command

from app.cli import app as command_line
from app.domain.error_codes import CATALOGUE, with_table
from tests.meta import ROOT, modules, name, sources_of_tests, tree

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
MUTATIONS = {
    *("rescue SENDING to PENDING", "asynchronous commit of the claim", "no fence", "no expiry check"),
    *("claim without compare-and-set", "record without compare-and-set", "defer without compare-and-set"),
    *("countdown not tied to the attempt", "relay without a lock", "relay with a blind update"),
    *("attempt counted at the claim", "cancel straight from SENDING", "early receipt dropped"),
    *("plain set-if-absent guard", "no rescue", "one bad member fails its chunk", "rescue by age"),
    *(
        "rescue by the bridge's mark",
        "marker overtakes a buffered chunk",
        "stamp drawn before the acknowledgement",
    ),
    *("claim with SKIP LOCKED", "no countdown grace"),
}
"""Those of the protocol, all of which broke the model too."""
CODE = re.compile(r"(?:VALIDATION|DOMAIN|AUTH|INFRA)_[A-Z_]+")


def _commands() -> dict[str, object]:
    return dict(get_command(command_line).commands)  # type: ignore[attr-defined]


def test_every_error_code_is_in_the_catalogue():
    """A client finds each code that it can get, and no code that was renamed.

    Fails for a code that is raised and has no line in error_codes.toml, and for a line that nothing raises.
    """
    raised = {
        node.value
        for path in modules("app")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    }
    assert raised == set(CATALOGUE)


def test_the_page_of_errors_is_written_from_the_catalogue():
    """`make errors` would change nothing: the page has each line of the catalogue, and no other."""
    page = (ROOT / "docs/errors.md").read_text()
    assert page == with_table(page)


def test_each_code_says_what_it_means_and_what_to_do():
    """Its status is one of errors, its first word says whose matter it is, and no line is empty."""
    for each in CATALOGUE.values():
        assert CODE.fullmatch(each.code), each
        assert 400 <= each.status < 600, each
        assert (each.status >= 500) == each.code.startswith("INFRA_"), each
        assert min(len(each.when), len(each.remedy)) > 10, each
        assert "|" not in each.when + each.remedy, each


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page):
    """A file that is linked exists, and so does the heading behind the #."""
    for target in re.findall(r"\]\(([^)#\s]*(?:#[\w-]+)?)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                target
            )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_in_the_docs_exists(page):
    """A reader can run what a page says."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= targets


def test_the_list_of_targets_names_every_target_of_the_readme():
    """`make help` is where one looks first: it shows what the README promises, each with its line."""
    lines = re.findall(r"^([a-z-]+):.*## +(\S.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = {target for target, _ in lines}
    readme = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"run", "test", "test-kafka", "bench", "soak", "chaos", "backlog", "bulkhead"} <= readme <= listed


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_in_the_docs_exists(page):
    """`arauto something` in a page is a command, and its subcommand and options exist too."""
    commands = _commands()
    for line in re.findall(r"(?:`|bin/|^)arauto ([a-z][^`\n)]*)", page.read_text(), re.MULTILINE):
        words = line.split()
        assert words[0] in commands, line
        command = commands[words[0]]
        sub = getattr(command, "commands", {})
        if len(words) > 1 and sub and not words[1].startswith("-"):
            assert words[1] in sub, line
            command = sub[words[1]]
        known = {option for parameter in command.params for option in parameter.opts}  # type: ignore[attr-defined]
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


def test_every_command_is_in_the_readme_or_its_help():
    """Each command explains itself with an example."""

    def check(label: str, command: object) -> None:
        for key, sub in getattr(command, "commands", {}).items():
            check(f"{label} {key}", sub)
        if not getattr(command, "commands", {}):
            assert re.search(r"Example: (?:\w+=\S+ )*arauto", command.help or ""), label  # type: ignore[attr-defined]

    for key, command in _commands().items():
        check(key, command)


def test_every_invariant_has_a_test():
    """docs/invariants.md names for each of the 13 a test that exists."""
    page = (ROOT / "docs/invariants.md").read_text()
    rows = re.findall(r"^\| (\d+) \| \*\*(.+?)\.\*\* [^|]+ \| (.+) \|$", page, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 14))
    known = {
        f"{name(path)}::{node.name}"
        for path in sources_of_tests()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef)
    }
    for number, _, cell in rows:
        named = re.findall(r"`(tests/[\w/]+\.py::\w+)`", cell)
        assert named, number
        assert set(named) <= known, (number, set(named) - known)


def test_every_mutation_has_a_test():
    """docs/invariants.md lists the mutations that a test was seen to fail under; each test exists and names it."""
    page = (ROOT / "docs/invariants.md").read_text().partition("## Mutations")[2]
    rows = re.findall(r"^\| ([^|]+) \| `(tests/[\w/]+\.py)::(\w+)` \|$", page, re.MULTILINE)
    assert {mutation for mutation, _, _ in rows} >= MUTATIONS
    assert len(rows) == page.count("\n| ") - page.count("\n| mutation |"), (
        "every row has the form that is read here"
    )
    for mutation, path, test in rows:
        found = [
            node
            for node in ast.walk(tree(ROOT / path))
            if isinstance(node, ast.FunctionDef)
            and node.name == test
            and re.search(r"\b[Ff]ails\b|utation", ast.get_docstring(node) or "")
        ]
        assert found, mutation


def test_every_decision_is_in_the_list():
    """docs/adr/README.md lists each decision once, and each has the sections of the template."""
    listed = re.findall(
        r"^\| \[(\d{4})\]\((\d{4}-[\w-]+\.md)\)", (ROOT / "docs/adr/README.md").read_text(), re.MULTILINE
    )
    files = sorted(path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md"))
    assert [file for _, file in listed] == files
    for number, file in listed:
        text = (ROOT / "docs/adr" / file).read_text()
        assert text.startswith(f"# {number}. ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
            "Question",
            "Decision",
            "Rejected",
            "Consequences",
            "Look again when",
        ]
