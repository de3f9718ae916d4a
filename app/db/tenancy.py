"""How a statement of a request is held to one tenant.

Such a statement is sent behind one of these, in the same message. PostgreSQL runs a message over an autocommit
connection as one transaction, so the role and the setting hold for the statement and for nothing after it. The
role `arauto_api` may see and write only rows that the policies of the migrations let through.
"""

from collections.abc import Mapping
from typing import Any

from app.db.requests import Cursor

_AS_TENANT = "SET LOCAL ROLE arauto_api; SELECT set_config('arauto.tenant', %(tenant_id)s, true); "
_AS_HOLDER = "SET LOCAL ROLE arauto_api; SELECT set_config('arauto.key_prefix', %(prefix)s, true); "


def run_as_tenant(cursor: Cursor, statement: str, values: Mapping[str, Any]) -> None:
    """Run `statement` for the tenant in `values["tenant_id"]`; no row of another one exists for it."""
    cursor.execute(_AS_TENANT + statement, values)


def run_as_holder(cursor: Cursor, statement: str, values: Mapping[str, Any]) -> None:
    """Run `statement` for somebody who showed an API key, before the tenant is known.

    Nothing exists for it but the one key whose prefix is `values["prefix"]`.
    """
    cursor.execute(_AS_HOLDER + statement, values)
