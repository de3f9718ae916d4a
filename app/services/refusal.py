"""Why a use case did not do what was asked.

A request can be well formed and impossible, not allowed to this caller, from nobody who is known, or come at a
moment when that cannot be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; `field` is a dotted path into the request body."""

    field: str
    message: str


class Refused(Exception):  # noqa: N818  a refusal is an answer, not a fault of ours
    """The request cannot be done as it stands. `code` is stable and begins with DOMAIN_."""

    def __init__(self, code: str, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)


class NotFound(Refused):
    """What was named does not exist for this tenant."""


class Forbidden(Refused):
    """It is not for this caller to do. `code` begins with AUTH_."""


class Unauthenticated(Exception):  # noqa: N818  an answer too
    """Who calls is not proven. `code` begins with AUTH_.

    `tenant_id` and `subject` say who it was, for the audit log, where that is known in spite of it: of a key or
    token that was good once, or whose prefix is. No answer tells them.
    """

    def __init__(self, code: str, message: str, tenant_id: str = "", subject: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.tenant_id = tenant_id
        self.subject = subject


class Unavailable(Exception):  # noqa: N818  an answer too
    """Something else is needed that does not answer now. `code` begins with INFRA_."""

    def __init__(self, code: str, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_seconds = retry_after_seconds
