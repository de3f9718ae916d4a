"""Users from the side of the tenant: written, read, listed, looked up by an address.

Addresses are sealed here, before they reach the database, and opened here for an answer. Whoever may not see them
gets them masked; whoever may, must say so by a scope, or be the user.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.db import users
from app.db.requests import Cursor, RequestPool
from app.db.users import Look, UserRow
from app.domain import masking
from app.domain.callers import Caller
from app.domain.instants import instant
from app.observability.logging import get_logger
from app.sealing import SealBrokenError, UnknownKeyError, Vault, context
from app.services.cursors import Cursors
from app.services.refusal import Forbidden, NotFound, Problem, Refused, Unavailable
from app.services.user_changes import FIELDS, OWN_FIELDS, UserChange

SEES_ADDRESSES = "recipients:read"
STORED_ATTRIBUTES_LIMIT = 65_536
"""Bytes of a user's attributes as PostgreSQL writes them, after a merge."""
_TRIES = 4
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """Some users in the order of their ids, as the API shows them, and where the next page begins."""

    rows: Sequence[dict[str, Any]]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """A user that was written, as the API shows it, and whether it is new."""

    user: dict[str, Any]
    is_new: bool


class ManageUsers:
    """The use cases. Each may be repeated on another connection when its own turns out to be dead."""

    def __init__(self, pool: RequestPool, vault: Vault, cursors: Cursors) -> None:
        self._pool = pool
        self._vault = vault
        self._cursors = cursors

    def write(self, caller: Caller, change: UserChange, *, creates: bool) -> Written:
        """Write one user of the caller's tenant.

        Raises NotFound when there is none and `creates` is False, Forbidden for a field that a person may not
        change, Refused when the merged attributes are too large, Unavailable when others write it all the time.
        """
        _may_change(caller, change)
        row = self._row(caller.tenant_id, change)
        for _ in range(_TRIES):
            found = self._pool.run(
                lambda cursor: users.write_one(
                    cursor, caller.tenant_id, row, creates=creates, attributes_limit=STORED_ATTRIBUTES_LIMIT
                )
            )
            if found is not None:
                outcome, stored = found
                if stored is None:
                    raise _too_large()
                return Written(self.view(caller, stored), outcome == "created")
            if not creates:
                raise not_found()
        raise _contended()

    def write_many(self, caller: Caller, changes: Sequence[UserChange]) -> dict[str, str]:
        """Write users of different ids; return `created`, `updated` or `too large` for each id."""
        rows = {change.id: self._row(caller.tenant_id, change) for change in changes}
        outcomes: dict[str, str] = {}
        for _ in range(_TRIES):
            if not rows:
                return outcomes
            outcomes |= self._pool.run(
                partial(self._write_rows, tenant_id=caller.tenant_id, rows=list(rows.values()))
            )
            rows = {identifier: row for identifier, row in rows.items() if identifier not in outcomes}
        if rows:
            raise _contended()
        return outcomes

    @staticmethod
    def _write_rows(cursor: Cursor, tenant_id: str, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
        return users.write_many(cursor, tenant_id, rows, attributes_limit=STORED_ATTRIBUTES_LIMIT)

    def read(self, caller: Caller, identifier: str) -> dict[str, Any]:
        """Return a user of the caller's tenant as the API shows it; raise NotFound, also for somebody else's."""
        if caller.only_user not in {None, identifier}:
            raise not_found()
        row = self._pool.run(lambda cursor: users.find(cursor, caller.tenant_id, identifier))
        if row is None:
            raise not_found()
        return self.view(caller, row)

    def page(self, caller: Caller, asked: Mapping[str, str], limit: int, cursor: str | None = None) -> Page:
        """Return `limit` users from where `cursor` says; raise ValueError for a bad one.

        `asked` narrows the list: `status`, and one of `email` and `phone` in their stored form. A cursor belongs
        to what was asked for.
        """
        index = partial(self._vault.index, caller.tenant_id)
        look = Look(
            asked.get("status"),
            index("email", asked["email"]) if "email" in asked else None,
            index("phone", asked["phone"]) if "phone" in asked else None,
        )
        scope = f"users {caller.tenant_id} {look.status} {look.email_index!r} {look.phone_index!r}"
        after = "" if cursor is None else self._cursors.read(scope, cursor)
        rows = self._pool.run(lambda lent: users.page(lent, caller.tenant_id, look, after, limit + 1))
        shown = rows[:limit]
        return Page(
            [self.view(caller, row) for row in shown],
            self._cursors.make(scope, shown[-1].id) if len(rows) > limit else None,
        )

    def view(self, caller: Caller, row: UserRow) -> dict[str, Any]:
        """Return a user as the API shows it to this caller."""
        is_open = sees_addresses(caller, row.id)
        email, phone = (
            opened(self._vault, context(kind, caller.tenant_id, row.id), sealed)
            for kind, sealed in (("email", row.email), ("phone", row.phone))
        )
        return {
            "id": row.id,
            "status": row.status,
            "email": email if email is None or is_open else masking.email(email),
            "phone": phone if phone is None or is_open else masking.phone(phone),
            "locale": row.locale,
            "time_zone": row.time_zone,
            "attributes": row.attributes,
            "last_seen_at": None if row.last_seen_at is None else instant(row.last_seen_at),
            "created_at": instant(row.created_at),
            "updated_at": instant(row.updated_at),
        }

    def _row(self, tenant_id: str, change: UserChange) -> dict[str, Any]:
        """Return a change as `app.db.users` takes it: addresses sealed, attributes apart from those to remove."""
        row = dict(change.fields)
        for kind in ("email", "phone"):
            if (text := row.get(kind)) is not None:
                sealed = self._vault.seal(context(kind, tenant_id, change.id), text.encode())
                row[kind] = _base64(sealed)
                row[f"{kind}_index"] = _base64(self._vault.index(tenant_id, kind, text))
        removed: list[str] = []
        if not change.replaces and row.get("attributes"):
            removed = [name for name, value in row["attributes"].items() if value is None]
            row["attributes"] = {name: value for name, value in row["attributes"].items() if value is not None}
        given = FIELDS if change.replaces else tuple(change.fields)
        if change.replaces:
            row.setdefault("status", "ACTIVE")
        return row | {"id": change.id, "given": given, "replaces": change.replaces, "removed": removed}


def sees_addresses(caller: Caller, user_id: str | None) -> bool:
    """Tell whether the caller may see the addresses of a user; None stands for one who is not the caller."""
    return (user_id is not None and caller.only_user == user_id) or caller.has(SEES_ADDRESSES)


def opened(vault: Vault, place: bytes, sealed: memoryview | None) -> str | None:
    """Return what was sealed; None for nothing, and for what is damaged, which the log tells.

    Raises Unavailable while its key is not there: what was sealed is still whole.
    """
    if sealed is None:
        return None
    try:
        return vault.open(place, bytes(sealed)).decode()
    except UnknownKeyError as error:
        _log.error("encryption_key_missing", reason=str(error))
        raise Unavailable("INFRA_ENCRYPTION_KEY_MISSING", "This cannot be read right now.", 60) from error
    except SealBrokenError as error:
        _log.error("address_unreadable", reason=str(error))
        return None


def not_found() -> NotFound:
    """Return the answer for a user who is not there, or not the caller's to see."""
    return NotFound("DOMAIN_USER_UNKNOWN", "There is no such user.")


def _may_change(caller: Caller, change: UserChange) -> None:
    if caller.only_user is None:
        return
    if caller.only_user != change.id:
        raise not_found()
    others = sorted(set(change.fields) - OWN_FIELDS)
    if others:
        problems = [Problem(name, "is not for the user to change") for name in others]
        raise Forbidden("AUTH_FIELD_NOT_ALLOWED", "A token of the role USER may not change this.", problems)


def _too_large() -> Refused:
    return Refused(
        "DOMAIN_ATTRIBUTES_TOO_LARGE",
        "The attributes would be too large.",
        [Problem("attributes", f"together with those stored, more than {STORED_ATTRIBUTES_LIMIT} bytes")],
    )


def _contended() -> Unavailable:
    return Unavailable("INFRA_DATABASE_BUSY", "The user is being written by others. Repeat the request.", 1)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
