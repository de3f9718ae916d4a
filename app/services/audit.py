"""What the audit log is told of a change, in the form that the statement of the change takes.

A use case adds `audited(…)` to the values of its statement, and its statement has `app.db.audit.entry_of(…)` among
its expressions: docs/audit.md shows both. What goes into `changes` is for the use case to choose; `changed` helps.
No address, token or content gets in: name such a field, or mask it.
"""

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from app.domain import origins
from app.domain.audit import Entry, role_of
from app.domain.callers import Caller

_SHOWN_LENGTH = 64
_MASK = "…"


def entry(
    caller: Caller, action: str, resource_type: str, resource_id: str, changes: Mapping[str, Any] | None = None
) -> Entry:
    """Return the entry of what `caller` does right now. `action` is `resource.participle`."""
    origin = origins.current()
    return Entry(
        tenant_id=caller.tenant_id,
        actor=caller.subject,
        actor_role=role_of(caller),
        action=action,
        resource_type=resource_type,
        resource_id=resource_id,
        changes=dict(changes or {}),
        key_id=caller.key_id,
        network=origin.network,
        trace_id=origin.trace_id,
    )


def audited(
    caller: Caller, action: str, resource_type: str, resource_id: str, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values that a statement with `entry_of` takes beside its own; `tenant_id` among them."""
    row = entry(caller, action, resource_type, resource_id, changes).row()
    return {
        "tenant_id": caller.tenant_id,
        "audit_id": row["id"],
        "audit_actor": row["actor"],
        "audit_role": row["actor_role"],
        "audit_key_id": row["key_id"],
        "audit_action": row["action"],
        "audit_resource_type": row["resource_type"],
        "audit_resource_id": row["resource_id"],
        "audit_changes": orjson.dumps(row["changes"]).decode(),
        "audit_address": row["address"],
        "audit_trace_id": row["trace_id"],
    }


def changed(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    named: Collection[str] = (),
    masked: Collection[str] = (),
) -> dict[str, Any]:
    """Return what differs, as `{field: {"from": …, "to": …}}`.

    Of the fields in `named` only that they changed is told (`{}`), addresses belong into `masked`: their beginning
    and, of an e-mail address, its domain.
    """
    differing = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    return {
        name: {} if name in named else _told(before.get(name), after.get(name), is_address=name in masked)
        for name in sorted(differing)
    }


def _told(old: Any, new: Any, *, is_address: bool) -> dict[str, Any]:
    show = mask if is_address else _short
    return {"from": show(old), "to": show(new)}


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _SHOWN_LENGTH:
        return value[:_SHOWN_LENGTH] + _MASK
    return value


def mask(address: str | None) -> str | None:
    """Return what may be shown of an e-mail address, phone number or device token."""
    if not address:
        return address
    name, at, domain = address.rpartition("@")
    if at:
        return f"{name[:1]}{_MASK}@{domain}"
    return f"{address[:3]}{_MASK}{address[-2:]}" if address.startswith("+") else f"{address[:2]}{_MASK}"
