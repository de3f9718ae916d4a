"""Keeping templates: a new version, the list, the choice among versions, the archive.

Invariants: a version never changes and is never removed, so what was accepted with it is sent with it, whatever
happens to the template afterwards. The same content again makes no new version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.db import templates
from app.db.requests import RequestPool
from app.db.templates import Held, Listed, TemplateRow, VersionRow
from app.domain.callers import Caller
from app.domain.instants import instant
from app.observability.logging import get_logger
from app.services.cursors import Cursors
from app.services.refusal import NotFound
from app.services.templates.draft import Draft, checked

_NEWEST = 2**31 - 1
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """Some templates by name, and where the next page begins."""

    rows: Sequence[Listed]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class VersionPage:
    """Some versions, newest first, and where the next page begins."""

    rows: Sequence[VersionRow]
    next_cursor: str | None


class ManageTemplates:
    """The use cases. Each may be repeated on another connection when its own turns out to be dead."""

    def __init__(self, pool: RequestPool, cursors: Cursors) -> None:
        self._pool = pool
        self._cursors = cursors

    def store(self, caller: Caller, name: str, draft: Draft) -> Held:
        """Make `draft` the current version of the template `name`, which need not exist yet and is in use then.

        Raises Refused naming each fault by field and line.
        """
        kept = checked(draft)
        values = {
            "tenant_id": caller.tenant_id,
            "name": name,
            "category": kept.category,
            "digest": kept.digest(),
            "default_locale": kept.default_locale,
            "variables": orjson.dumps(kept.variables).decode(),
            "bodies": orjson.dumps(kept.bodies).decode(),
            "created_by": caller.subject,
        }
        held = self._pool.run(lambda cursor: templates.store(cursor, values))
        if held.is_new:
            _log.info(
                "template_version_stored",
                tenant_id=caller.tenant_id,
                template=name,
                version=held.version.number,
                by=caller.subject,
            )
        return held

    def find(self, caller: Caller, name: str, number: int | None = None) -> Held:
        """Return a template with its current version, or with the one of that number; raise NotFound."""
        held = self._pool.run(lambda cursor: templates.find(cursor, caller.tenant_id, name, number))
        if held is None:
            raise not_found() if number is None else _no_version(number)
        return held

    def page(self, caller: Caller, limit: int, cursor: str | None = None, *, archived: bool = False) -> Page:
        """Return `limit` templates from where `cursor` says; raise ValueError for a bad one."""
        scope = f"templates {caller.tenant_id} {archived}"
        after = "" if cursor is None else self._cursors.read(scope, cursor)
        rows = self._pool.run(
            lambda lent: templates.page(lent, caller.tenant_id, after, limit + 1, archived=archived)
        )
        shown = rows[:limit]
        following = self._cursors.make(scope, shown[-1].template.name) if len(rows) > limit else None
        return Page(shown, following)

    def versions(self, caller: Caller, name: str, limit: int, cursor: str | None = None) -> VersionPage:
        """Return `limit` versions of a template; raise NotFound, or ValueError for a bad cursor."""
        scope = f"template-versions {caller.tenant_id} {name}"
        before = _NEWEST if cursor is None else int(self._cursors.read(scope, cursor))
        rows = self._pool.run(lambda lent: templates.versions(lent, caller.tenant_id, name, before, limit + 1))
        if not rows and cursor is None:
            raise not_found()
        shown = rows[:limit]
        following = self._cursors.make(scope, str(shown[-1].number)) if len(rows) > limit else None
        return VersionPage(shown, following)

    def choose(self, caller: Caller, name: str, number: int) -> Held:
        """Make a version the current one, and take the template into use again; raise NotFound."""
        held = self._pool.run(lambda cursor: templates.choose(cursor, caller.tenant_id, name, number))
        if held is None:
            self.find(caller, name)
            raise _no_version(number)
        _log.info(
            "template_version_chosen", tenant_id=caller.tenant_id, template=name, version=number, by=caller.subject
        )
        return held

    def archive(self, caller: Caller, name: str) -> None:
        """Take a template out of use; again is harmless. What was accepted is still sent. Raises NotFound."""
        if not self._pool.run(lambda cursor: templates.archive(cursor, caller.tenant_id, name)):
            raise not_found()
        _log.info("template_archived", tenant_id=caller.tenant_id, template=name, by=caller.subject)


def not_found() -> NotFound:
    """Return the refusal for a template that does not exist."""
    return NotFound("DOMAIN_TEMPLATE_UNKNOWN", "There is no such template.")


def _no_version(number: int) -> NotFound:
    return NotFound("DOMAIN_TEMPLATE_VERSION_NOT_FOUND", f"The template has no version {number}.")


def view(held: Held) -> dict[str, Any]:
    """Return a template with one of its versions, as the API shows it."""
    return _template(held.template) | {"version": version_view(held.version)}


def listed_view(row: Listed) -> dict[str, Any]:
    """Return a template as a list shows it."""
    return _template(row.template) | {"default_locale": row.default_locale, "locales": row.locales}


def version_view(row: VersionRow) -> dict[str, Any]:
    """Return a version as the API shows it."""
    return {
        "number": row.number,
        "created_by": row.created_by,
        "created_at": instant(row.created_at),
        "default_locale": row.default_locale,
        "variables": row.variables,
        "bodies": row.bodies,
    }


def _template(row: TemplateRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "category": row.category,
        "current_version": row.current_version,
        "latest_version": row.latest_version,
        "created_at": instant(row.created_at),
        "updated_at": instant(row.updated_at),
        "archived_at": None if row.archived_at is None else instant(row.archived_at),
    }
