"""The shape of the code: sizes, names, who may read the environment, who may build things, what tests may do."""

import ast
import re
import subprocess
import sys

import pytest

from tests.meta import ROOT, modules, name, sources_of_tests, tree

MODULE_LINES = 400
TEST_LINES = 600
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def test_no_module_is_longer_than_400_lines():
    """A module is split at 400 lines and a test file at 600, so that it keeps one reason to change."""
    long = {
        name(path): lines for path in modules() if (lines := len(path.read_text().splitlines())) > MODULE_LINES
    }
    long |= {
        name(path): lines
        for path in sources_of_tests()
        if (lines := len(path.read_text().splitlines())) > TEST_LINES
    }
    assert not long


def test_no_module_has_a_name_that_says_nothing():
    """A newcomer finds a file by its stage in the pipeline, which `utils` does not tell."""
    assert not [name(path) for path in modules() if path.stem in VAGUE_NAMES or path.parent.name in VAGUE_NAMES]


def test_every_module_says_what_it_is_for():
    """Each module that holds code begins with its role in the pipeline."""
    silent = [
        name(path)
        for path in (*modules(), *sources_of_tests())
        if path.read_text().strip() and not ast.get_docstring(tree(path))
    ]
    assert not silent


def test_only_the_settings_read_the_environment():
    """One file knows the environment; `embedded` may hand it on to the processes that it starts."""
    readers = set()
    for path in modules("app", "tasks", "providers", "sandbox"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv", "os.environb"}:
                readers.add(name(path))
            if isinstance(node, ast.ImportFrom) and node.module == "os":
                readers |= {name(path) for alias in node.names if alias.name in {"environ", "getenv"}}
    assert readers <= {"app/settings.py"}


def test_only_the_wiring_builds_engines_producers_and_redis_clients():
    """The composition root is the one place to look at for who shares what."""
    raw = {"create_engine", "Redis.from_url", "redis.Redis.from_url", "redis.from_url", "confluent_kafka.Producer"}
    homes = {"app/db/session.py", "app/limits/client.py"}
    strays = {
        f"{name(path)}:{node.lineno}"
        for path in modules("app", "tasks")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and not name(path).startswith(("app/wiring", "app/kafka/"))
        and _called(node) in {*raw, "make_engine", "make_redis"}
        and name(path) not in homes
    }
    assert not strays


def test_the_api_loads_neither_kafka_nor_celery_nor_an_adapter():
    """A process of the API starts quickly and stays small: what only others need is imported by others.

    Fails when the API's room of the wiring imports one of the pipeline's.
    """
    loaded = "import sys, app.factory; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    answer = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"confluent_kafka", "celery", "kombu", "providers", "aiosmtplib"} & set(answer.stdout.split())


def test_the_domain_uses_the_standard_library_only():
    """The state machine and the retry rules stay pure: importable anywhere, testable without a server."""
    foreign = set()
    for path in modules("app/domain"):
        for node in ast.walk(tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            foreign |= {
                f"{name(path)}: {imported}"
                for imported in names
                if imported.split(".")[0] not in sys.stdlib_module_names and not imported.startswith("app.domain")
            }
    assert not foreign


def test_sql_lives_in_the_database_layer_only():
    """Queries and locks are in `app/db` (and the migrations), where EXPLAIN tests look at them."""
    statement = re.compile(r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+\w+\s.*SET)\b", re.DOTALL)
    elsewhere = set()
    for path in modules("app", "tasks"):
        if name(path).startswith("app/db/"):
            continue
        docs = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        elsewhere |= {
            name(path)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value not in docs
            and statement.search(node.value)
        }
    assert not elsewhere


def test_queries_never_commit():
    """Use cases own their transactions: nothing in `app/db` commits or rolls back, but for the session itself."""
    committing = {
        f"{name(path)}:{node.lineno}"
        for path in modules("app/db")
        if path.name != "session.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in {"commit", "rollback"}
    }
    assert not committing


def test_nothing_swallows_an_exception_without_a_word():
    """`except …: pass` hides what an operator needs; `contextlib.suppress` at least names it."""
    silent = {
        f"{name(path)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)))
    }
    assert not silent


def test_no_test_sleeps():
    """Tests wait on a condition with `tests.waiting.eventually`; only that file may pause between two looks."""
    sleeping = {
        f"{name(path)}:{node.lineno}"
        for path in sources_of_tests()
        if name(path) != "tests/waiting.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and _called(node) in {"time.sleep", "sleep"}
    }
    assert not sleeping


def test_no_test_is_skipped_for_good():
    """A skip hides a missing part; what waits is named in tests/cases.toml instead."""
    skipped = {
        f"{name(path)}:{node.lineno}"
        for path in sources_of_tests()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in {"pytest.mark.skip", "pytest.mark.xfail", "pytest.skip", "pytest.importorskip"}
        and name(path) != "tests/meta/test_modules.py"
    }
    assert not skipped


@pytest.mark.parametrize(
    "pattern", [r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b", r"(?<![\w.])/(?:home|root|work|Users)/\w"]
)
def test_no_file_carries_a_leftover(pattern):
    """No promise left in a comment, and no path of the machine that a line was written on."""
    files = [
        *modules(),
        *sources_of_tests(),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        ROOT / "Makefile",
    ]
    found = {
        f"{name(path)}:{number}"
        for path in files
        if path.name != "test_modules.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    }
    assert not found
