"""The one shape of errors, for every server of ours that answers HTTP."""

import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def trace_id_of(traceparent: str) -> str:
    """Return the trace that a `traceparent` header names, or a fresh one: 32 hexadecimal digits."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match and set(match[1]) != {"0"} else secrets.token_hex(16)


def error_document(
    code: str, message: str, trace_id: str, problems: Iterable[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return what an error answer holds; `problems` are pairs of a field and what is wrong with it."""
    return {
        "error": {
            "code": code,
            "message": message,
            "details": [{"field": printable(field), "message": text} for field, text in problems],
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "trace_id": trace_id,
        }
    }


def printable(text: str) -> str:
    """Return a name that the client chose in a form that can be encoded, lone surrogates escaped."""
    return text.encode(errors="backslashreplace").decode()
