"""The proof after a chaos run: what the client was promised against the table, and the table against the provider.

lost        promised with 202 and not in the table, or SENT in the table and never accepted by the provider
stuck       not in a final state when the settling time is over
duplicates  accepted more than once by the provider; explained when the row's attempts show a call whose answer
            was lost (worker_lost or unknown), unexplained otherwise
"""

from dataclasses import dataclass, field
from typing import Any

from bench.stack import Stack

_PROMISED = "SELECT id::text FROM notification WHERE id = ANY(%s::uuid[])"
_DELIVERIES = """
SELECT d.id::text, d.channel, d.priority, d.status, d.error_code, d.uncertain, d.attempts,
       (SELECT string_agg(DISTINCT a.outcome || coalesce(' ' || a.code, ''), ', ') FROM attempt a
        WHERE a.delivery_id = d.id AND a.outcome IN ('unknown', 'worker_lost'))
FROM delivery d WHERE d.notification_id = ANY(%s::uuid[])
"""
FINAL = {"SENT", "DELIVERED", "FAILED", "CANCELLED", "EXPIRED"}


@dataclass
class Proof:
    """What the ledger of a run says; every list carries ids."""

    promised: int = 0
    deliveries: int = 0
    states: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    doubled_under_hold: list[str] = field(default_factory=list)
    failed_otherwise: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Nothing lost, nothing stuck, no double without a reason, none at all under `hold`."""
        return not (
            self.lost or self.stuck or self.unexplained or self.doubled_under_hold or self.failed_otherwise
        )


def prove(stack: Stack, notifications: list[str], arrivals: list[dict[str, Any]]) -> Proof:
    """Compare promises, rows and arrivals."""
    accepted: dict[str, int] = {}
    for row in arrivals:
        if row["outcome"] == "accepted":
            accepted[row["reference"]] = accepted.get(row["reference"], 0) + 1
    with stack.database() as connection, connection.cursor() as cursor:
        cursor.execute(_PROMISED, (notifications,))
        present = {row[0] for row in cursor.fetchall()}
        cursor.execute(_DELIVERIES, (notifications,))
        rows = cursor.fetchall()
    proof = Proof(promised=len(notifications), deliveries=len(rows))
    proof.lost.extend(sorted(set(notifications) - present))
    for identifier, channel, priority, status, error, uncertain, _attempts, unanswered in rows:
        proof.states[status] = proof.states.get(status, 0) + 1
        calls = accepted.get(identifier, 0)
        if status not in FINAL:
            proof.stuck.append(identifier)
        elif status in {"SENT", "DELIVERED"} and channel != "IN_APP" and calls == 0:
            proof.lost.append(identifier)
        elif status == "FAILED" and uncertain and error == "uncertain":
            proof.held.append(identifier)
        elif status == "FAILED":
            proof.failed_otherwise.append(identifier)
        if calls > 1:
            proof.reasons[unanswered or "none"] = proof.reasons.get(unanswered or "none", 0) + 1
            (proof.explained if unanswered else proof.unexplained).append(identifier)
            if channel == "SMS" and priority > 0:
                proof.doubled_under_hold.append(identifier)
    return proof
