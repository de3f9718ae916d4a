"""docs/protocol.md draws and lists the state machine of `app/domain/states.py`, no more and no less."""

import re

from app.domain.states import TERMINAL, TRANSITIONS, DeliveryState, edges
from tests.meta import ROOT

PAGE = (ROOT / "docs/protocol.md").read_text()
STATES = "|".join(state.value for state in DeliveryState)


def test_the_diagram_draws_exactly_the_edges_of_the_table():
    """Every edge that changes the state is one arrow, and every arrow is an edge."""
    diagram = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE, re.DOTALL)
    assert diagram is not None
    drawn = re.findall(rf"^\s*({STATES}) --> ({STATES})\b", diagram[1], re.MULTILINE)
    assert len(drawn) == len(set(drawn))
    assert {(DeliveryState(a), DeliveryState(b)) for a, b in drawn} == edges()


def test_the_verb_table_equals_the_transitions():
    """One row a verb: its name, who takes it, from where, to where."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([A-Z, ]+) \| ([A-Z, ]+) \|", PAGE, re.MULTILINE)
    written = {
        verb: (actor, frozenset(source.split(", ")), frozenset(target.split(", ")))
        for verb, actor, source, target in rows
    }
    table = {
        verb: (rule.actor, frozenset(map(str, rule.source)), frozenset(map(str, rule.target)))
        for verb, rule in TRANSITIONS.items()
    }
    assert written == table


def test_every_state_is_explained():
    """Each state has its line: what it means, who moves it on, what if that process dies."""
    explained = set(re.findall(r"^\| \*\*([A-Z]+)\*\* \|", PAGE, re.MULTILINE))
    assert explained == {state.value for state in DeliveryState}


def test_every_verb_leaves_from_a_state_that_something_reaches():
    """No dead rows: each source is the first state or the target of another verb."""
    reached = {DeliveryState.PENDING} | {target for verb in TRANSITIONS.values() for target in verb.target}
    assert all(verb.source <= reached for verb in TRANSITIONS.values())


def test_every_open_state_can_end():
    """From each state that is not terminal there is a way to a terminal one."""
    ends = set(TERMINAL)
    for _ in DeliveryState:
        ends |= {source for source, target in edges() if target in ends}
    assert ends == set(DeliveryState)


def test_the_page_says_what_cannot_be_promised():
    """The four limits stand in a section of their own, numbered."""
    section = PAGE.partition("## What it cannot promise")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d)\. ", section, re.MULTILINE) == ["1", "2", "3", "4"]
