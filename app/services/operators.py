"""Who works on this side of the API: a person at a command line, named by the account of the operating system."""

import getpass
import os

from app.domain.callers import Caller, Role


def operator(tenant_id: str) -> Caller:
    """Return who an operator is to the use cases: whoever reaches the database may do anything in it."""
    return Caller(f"cli:{_account()}", tenant_id, frozenset(), Role.ADMIN, is_operator=True)


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that no account has
        return str(os.getuid())
