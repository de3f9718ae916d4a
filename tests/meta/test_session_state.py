"""No statement of ours leaves anything in its session: a pooler may give the next transaction another one."""

import ast
import inspect
import json
import re

import pytest

from app.domain.kinds import Priority
from app.queues import RELAY_QUEUE
from app.services.nudge import Nudge
from app.services.task_list import relay_task
from tests.meta import modules, name, tree

OF_A_SESSION = re.compile(
    r"\b(?:UN)?LISTEN\s+\w|\bNOTIFY\s+\w|\bpg_notify\b|\bPREPARE\s+\w|\bDISCARD\s+\w|\bWITH\s+HOLD\b"
    r"|\bpg_(?:try_)?advisory_(?:un)?lock\w*|\bCREATE\s+TEMP|\bset_config\([^)]*false\)"
    r"|(?:^|;)\s*SET\s+(?!LOCAL\s|TRANSACTION\s)\w+\s+(?:TO|=)\s*\S|(?:^|;)\s*SET\s+(?:SESSION|ROLE)\s"
)


def statements() -> list[tuple[str, str]]:
    """Return each text of `app/db`, the services and the migrations that is no docstring, and where it stands."""
    found = []
    for path in modules("app", "tasks", "migrations"):
        docs = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        found += [
            (f"{name(path)}:{node.lineno}", node.value)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docs
        ]
    return found


def test_no_statement_leaves_anything_in_its_session():
    """Cases C11 and F07. No LISTEN, no NOTIFY, no named statement, and no SET or lock beyond the transaction."""
    assert not [(place, text) for place, text in statements() if OF_A_SESSION.search(text)]


@pytest.mark.parametrize(
    "statement",
    [
        *("LISTEN outbox", "SELECT 1; NOTIFY outbox, '7'", "SELECT pg_notify('outbox', '7')"),
        *("SELECT pg_advisory_lock(7)", "SELECT pg_try_advisory_lock_shared(7)", "PREPARE find AS SELECT 1"),
        *("SET statement_timeout = 5", "SET ROLE arauto_api", "SET SESSION timezone TO 'UTC'"),
        *("SELECT set_config('arauto.tenant', 'a', false)", "CREATE TEMP TABLE t (a int)"),
    ],
)
def test_a_statement_that_would_is_noticed(statement):
    """The look at our statements is one that can fail."""
    assert OF_A_SESSION.search(statement)


def test_the_nudge_carries_no_id_and_no_content():
    """Case C11. It says which priority to look at, once for many commits; what it loses the next tick finds."""
    assert list(inspect.signature(Nudge.nudge).parameters) == ["self", "priority"]
    body = json.loads(json.loads(relay_task(RELAY_QUEUE, Priority.HIGH))["body"])
    assert body[:2] == [[], {"v": 1, "priority": "HIGH"}]
