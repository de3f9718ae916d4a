"""Every UPDATE that changes a delivery's state is a verb of the state machine and names that verb's source states.

A statement that compared too little would overwrite a row that moved on; one that compared too much would leave
rows behind. The states are read from the SQL as it is sent.
"""

import importlib
import re

import pytest

from app.domain.states import TRANSITIONS, DeliveryState
from tests.meta import ROOT

VERBS = {
    "notifications.CANCEL": ("cancel",),
    "supersede.SUPERSEDE": ("supersede",),
    "batch_work.CANCEL_CHUNK": ("cancel",),
    "erasures.CANCEL": ("cancel",),
    "outbox.MARK_QUEUED": ("publish",),
    "outbox.BRING_BACK": ("rescue_queued",),
    "deliveries.CLAIM": ("claim",),
    "deliveries.DEFER": ("defer",),
    "ordering.WAIT": ("defer",),
    "deliveries.REJECT": ("reject_unrenderable",),
    "deliveries.GIVE_BACK": ("give_back",),
    "deliveries.RECORD": ("mark_sent", "retry", "reject", "mark_unknown"),
    "withhold.HOLD": ("defer",),
    "withhold.WITHHOLD": ("withhold",),
    "inbox_arrivals.RECORD_INBOX": ("mark_sent", "retry", "reject", "mark_unknown"),
    "recovery.RESCUE_SENDING": ("rescue_sending",),
    "recovery.RESOLVE": ("resolve_resend", "resolve_hold"),
    "recovery.EXPIRE": ("expire",),
    "recovery.RECEIPT_POSITIVE": ("receipt_positive",),
    "recovery.RECEIPT_NEGATIVE": ("receipt_negative",),
    "replay._REPLAY": ("replay",),
}
# A receipt, a cancel or a newer notification that finds the row SENDING or UNKNOWN only leaves a note in it.
NOTED_WHILE = {
    "recovery.RECEIPT_POSITIVE": {"SENDING"},
    "recovery.RECEIPT_NEGATIVE": {"SENDING"},
    "notifications.CANCEL": {"SENDING", "UNKNOWN"},
    "supersede.SUPERSEDE": {"SENDING", "UNKNOWN"},
    "batch_work.CANCEL_CHUNK": {"SENDING", "UNKNOWN"},
    "erasures.CANCEL": {"SENDING", "UNKNOWN"},
}
STATES = "|".join(state.value for state in DeliveryState)


def _statements() -> dict[str, str]:
    found = {}
    for path in sorted((ROOT / "app/db").glob("*.py")):
        module = importlib.import_module(f"app.db.{path.stem}")
        for key, value in vars(module).items():
            if isinstance(value, str) and re.search(r"UPDATE delivery\b[^;]*?\bstatus = ", _assignments(value)):
                found[f"{path.stem}.{key}"] = value
    return found


def _assignments(statement: str) -> str:
    """Return the UPDATE … SET … parts of a statement, up to their FROM or WHERE at the start of a line."""
    return "\n".join(re.findall(r"UPDATE delivery\b.*?(?=\n\s*(?:FROM|WHERE)\b|\Z)", statement, re.DOTALL))


def _compared(statement: str) -> set[str]:
    rest = statement
    for part in _assignments(statement).split("UPDATE delivery"):
        rest = rest.replace(part, "") if part else rest
    sources: set[str] = set()
    for listed in re.findall(r"status\s*(?:=\s*ANY\s*\('\{|IN\s*\(|=\s*')([A-Z_,' ]+)", rest):
        sources |= set(re.findall(rf"\b({STATES})\b", listed))
    return sources


def _assigned(statement: str) -> set[str]:
    match = re.search(r"\bstatus = (.*?)(?:,\s*\n?\s*\w+ = |\Z)", _assignments(statement), re.DOTALL)
    return set(re.findall(rf"'({STATES})'", match[1])) if match else set()


def test_every_statement_that_changes_a_state_is_a_known_verb():
    """A new UPDATE of `delivery.status` must say here which verb it is."""
    assert set(_statements()) == set(VERBS)


def test_every_verb_has_its_statement():
    """No verb exists on paper only."""
    assert {verb for verbs in VERBS.values() for verb in verbs} == set(TRANSITIONS)


@pytest.mark.parametrize("statement", VERBS)
def test_a_statement_compares_the_source_states_of_its_verbs(statement):
    """The WHERE clause names exactly the states that the machine lets the verb leave."""
    sources = {str(state) for verb in VERBS[statement] for state in TRANSITIONS[verb].source}
    assert _compared(_statements()[statement]) - NOTED_WHILE.get(statement, set()) == sources


@pytest.mark.parametrize("statement", VERBS)
def test_a_statement_assigns_only_target_states_of_its_verbs(statement):
    """And the SET clause names the states that the verbs may lead to, all of them."""
    targets = {str(state) for verb in VERBS[statement] for state in TRANSITIONS[verb].target}
    assert _assigned(_statements()[statement]) == targets
