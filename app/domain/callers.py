"""Who calls, once that is proven: for which tenant, as whom, in which role, and what they may do."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What kind of caller it is. Scopes say what it may do, the role on whose notifications."""

    USER = "USER"
    """A person. Only what belongs to the person is theirs to see or to change."""
    SERVICE = "SERVICE"
    """A program of the tenant, and what a token without a role stands for."""
    ADMIN = "ADMIN"
    """Whoever looks after the tenant. Has every scope."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A proven caller. `subject` is the user's id for a USER.

    `key_id` names the API key that was shown, when it was one. An operator works on this side of the API, by a
    command; no token or key makes one.
    """

    subject: str
    tenant_id: str
    scopes: frozenset[str]
    role: Role = Role.SERVICE
    key_id: str | None = None
    is_operator: bool = False

    def has(self, scope: str) -> bool:
        """Tell whether `scope` is granted."""
        return self.role is Role.ADMIN or scope in self.scopes

    @property
    def only_user(self) -> str | None:
        """The one user whose notifications the caller may touch; None when those of the whole tenant."""
        return self.subject if self.role is Role.USER else None


@dataclass(frozen=True, slots=True)
class Proven:
    """A caller, and until when the proof may be relied on without another look. Seconds since the epoch.

    `key_id` names the API key that was shown, when it was one. `expires_at` is when what was shown ends for good,
    where that is known: a token says so, a key may be revoked or replaced and is looked at again.
    """

    caller: Caller
    until: float
    key_id: str | None = None
    expires_at: float | None = None
