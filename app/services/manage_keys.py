"""API keys from the side of those who hand them out: make, list, replace, revoke.

Invariants: a key is told once, by the call that made it, and cannot be found again. Nobody hands out more than
they have: neither by making a key nor by replacing one, since the answer is a key that works. A key that was
replaced works on for an overlap, in which its users change over; a revoked one ends at once, give or take the few
seconds for which a look into the table counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.db import api_keys
from app.db.api_keys import KeyRow
from app.db.requests import Cursor, RequestPool
from app.domain.api_keys import NewKey, digest, mint
from app.domain.callers import Caller
from app.domain.ids import mint as mint_id
from app.domain.instants import instant
from app.observability.logging import get_logger
from app.services.audit import audited
from app.services.cursors import Cursors
from app.services.refusal import Forbidden, NotFound, Problem, Refused
from app.services.tokens import ALL_SCOPES

OVERLAP_SECONDS = 86_400
OVERLAP_LIMIT_SECONDS = 30 * 86_400
LIFETIME_LIMIT_SECONDS = 10 * 365 * 86_400

_LIST = "api-keys"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Issued:
    """A key that was just made: what is stored of it, and the key itself, which is not."""

    row: KeyRow
    text: str

    def view(self) -> dict[str, Any]:
        """Return what the API shows this once."""
        return {**view(self.row), "key": self.text}


@dataclass(frozen=True, slots=True)
class Page:
    """Some keys, newest first, and where the next page begins."""

    rows: Sequence[KeyRow]
    next_cursor: str | None


class ManageKeys:
    """The use cases. Each may be repeated on another connection when its own turns out to be dead."""

    def __init__(self, pool: RequestPool, cursors: Cursors) -> None:
        self._pool = pool
        self._cursors = cursors

    def create(self, caller: Caller, name: str, scopes: Sequence[str], expires_in: int | None = None) -> Issued:
        """Make a key of the caller's tenant, valid for `expires_in` seconds or until it is revoked.

        Raises Refused for a scope that does not exist, Forbidden for one that the caller lacks.
        """
        unknown = [scope for scope in scopes if scope not in ALL_SCOPES]
        if unknown:
            problems = [Problem("scopes", f"{scope} is not a scope") for scope in unknown]
            raise Refused("DOMAIN_SCOPE_UNKNOWN", "A scope does not exist.", problems)
        _may_grant(caller, scopes)
        new, new_id = mint(), str(mint_id()[0])
        given = {"name": name, "scopes": sorted(set(scopes)), "expires_in": expires_in}
        told = given | {"prefix": new.prefix}
        values = (
            _values(caller, new)
            | given
            | {"id": new_id}
            | audited(caller, "api_key.created", "api_key", new_id, told)
        )
        row = self._pool.run(lambda cursor: api_keys.create(cursor, values))
        _log.info("api_key_created", tenant_id=caller.tenant_id, key_id=row.id, by=caller.subject)
        return Issued(row, new.text)

    def page(self, caller: Caller, limit: int, cursor: str | None = None) -> Page:
        """Return `limit` keys of the caller's tenant from where `cursor` says; raise ValueError for a bad one."""
        scope = f"{_LIST} {caller.tenant_id}"
        before = None if cursor is None else self._cursors.read(scope, cursor)
        rows = self._pool.run(lambda lent: api_keys.page(lent, caller.tenant_id, before, limit + 1))
        shown = rows[:limit]
        return Page(shown, self._cursors.make(scope, shown[-1].id) if len(rows) > limit else None)

    def rotate(self, caller: Caller, identifier: str, overlap_seconds: int = OVERLAP_SECONDS) -> Issued:
        """Make a key in the place of another, which ends after the overlap, or when it was to end anyway.

        Raises NotFound; Forbidden when the key may do what the caller may not; Refused when it has ended or was
        replaced before.
        """
        new, new_id = mint(), str(mint_id()[0])
        told = {"replaced_by": new_id, "prefix": new.prefix, "overlap_seconds": overlap_seconds}
        values = (
            _values(caller, new)
            | {"id": identifier, "new_id": new_id, "overlap": overlap_seconds}
            | audited(caller, "api_key.rotated", "api_key", identifier, told)
        )

        def replace(cursor: Cursor) -> KeyRow:
            old = api_keys.find(cursor, caller.tenant_id, identifier)
            if old is None:
                raise _not_found()
            _may_grant(caller, old.scopes)
            made = api_keys.rotate(cursor, values) or api_keys.find(cursor, caller.tenant_id, new_id)
            if made is None:
                raise _ended(api_keys.find(cursor, caller.tenant_id, identifier) or old)
            return made

        row = self._pool.run(replace)
        _log.info("api_key_rotated", tenant_id=caller.tenant_id, key_id=identifier, by=caller.subject, new=row.id)
        return Issued(row, new.text)

    def revoke(self, caller: Caller, identifier: str) -> KeyRow:
        """End a key of the caller's tenant; again is harmless. Raises NotFound."""
        values = {"id": identifier} | audited(caller, "api_key.revoked", "api_key", identifier)
        row = self._pool.run(lambda cursor: api_keys.revoke(cursor, values))
        if row is None:
            raise _not_found()
        _log.info("api_key_revoked", tenant_id=caller.tenant_id, key_id=row.id, by=caller.subject)
        return row


def view(row: KeyRow) -> dict[str, Any]:
    """Return a key as the API shows it; the key itself is not known."""
    return {
        "id": row.id,
        "prefix": row.prefix,
        "name": row.name,
        "scopes": row.scopes,
        "status": row.status,
        "created_by": row.created_by,
        "created_at": instant(row.created_at),
        "expires_at": _instant(row.expires_at),
        "revoked_at": _instant(row.revoked_at),
        "replaced_by": row.replaced_by,
        "last_used_at": _instant(row.last_used_at),
    }


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else instant(moment)


def _values(caller: Caller, new: NewKey) -> dict[str, Any]:
    return {
        "tenant_id": caller.tenant_id,
        "created_by": caller.subject,
        "prefix": new.prefix,
        "digest": digest(new.text),
    }


def _may_grant(caller: Caller, scopes: Sequence[str]) -> None:
    lacking = [scope for scope in scopes if not caller.has(scope)]
    if lacking:
        problems = [Problem("scopes", f"{scope} is not yours to give") for scope in lacking]
        raise Forbidden("AUTH_SCOPE_NOT_HELD", "A key cannot do more than its maker.", problems)


def _not_found() -> NotFound:
    return NotFound("DOMAIN_API_KEY_NOT_FOUND", "There is no such API key.")


def _ended(old: KeyRow) -> Refused:
    if old.status == "REPLACED":
        return Refused("DOMAIN_API_KEY_REPLACED", "The API key was replaced before; rotate its replacement.")
    return Refused("DOMAIN_API_KEY_ENDED", "The API key has ended; make a new one.")
