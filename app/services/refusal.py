"""Why a use case did not do what was asked: well-formed requests that cannot be carried out."""

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
