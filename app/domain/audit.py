"""One entry of the audit log, before it is stored: who did what to what, and from where."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.domain.callers import Caller
from app.domain.ids import mint

OPERATOR = "OPERATOR"
NO_ROLE = "NONE"
NO_TENANT = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry. `changes` names fields, and their values only where these are neither personal nor secret.

    `network` is where it came from, `at` the moment of storing when None. `count` is how often it happened, for
    what is gathered.
    """

    tenant_id: str
    actor: str
    actor_role: str
    action: str
    resource_type: str
    resource_id: str
    changes: dict[str, Any] = field(default_factory=dict)
    key_id: str | None = None
    network: str | None = None
    trace_id: str | None = None
    at: datetime | None = None
    count: int = 1
    id: str = field(default_factory=lambda: str(mint()[0]))

    def row(self) -> dict[str, Any]:
        """Return the columns of the entry."""
        return {
            "id": self.id,
            "tenant_id": self.tenant_id,
            "actor": self.actor,
            "actor_role": self.actor_role,
            "key_id": self.key_id,
            "action": self.action,
            "resource_type": self.resource_type,
            "resource_id": self.resource_id,
            "changes": self.changes,
            "address": self.network,
            "trace_id": self.trace_id,
            "at": self.at,
            "count": self.count,
        }


def role_of(caller: Caller) -> str:
    """Return in which role a caller acts, as the audit log tells it."""
    return OPERATOR if caller.is_operator else caller.role.value
