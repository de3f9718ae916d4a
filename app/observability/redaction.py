"""Redaction: the last gate before a log line leaves the process. Logs carry ids, never addresses or content.

Two rules, since neither is enough alone: the value of a key that names something private is replaced whatever it
is, and every string left is searched for what looks like an address, a token or a password in a URL. The second
rule exists for exceptions: a driver quotes the failing row in its message, and no caller can know that before.
"""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

MASK = "[redacted]"

_PRIVATE_KEYS = frozenset(
    {
        "address",
        "addresses",
        "answer",
        "authorization",
        "body",
        "content",
        "cookie",
        "email",
        "html",
        "jwt",
        "metadata",
        "parameters",
        "params",
        "payload",
        "phone",
        "recipient",
        "recipients",
        "request_body",
        "response_body",
        "subject_line",
        "text",
        "title",
        "token",
    }
)
_PRIVATE_PARTS = (
    "password",
    "secret",
    "credential",
    "api_key",
    "apikey",
    "_address",
    "access_token",
    "push_token",
)

_E_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_PHONE = re.compile(r"(?<![\w.])\+\d{7,15}\b")
_JWT = re.compile(r"\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*")
_API_KEY = re.compile(r"\bak_[0-9a-f]{12}_\w+")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_URL_USER = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]*@", re.IGNORECASE)
_QUOTE_ENDS = r"(?=\n(?:CONTEXT|HINT|\[SQL|\(Background|The above|  File)|$)"
_FAILING_ROW = re.compile(r"(?s)(Failing row contains |Key \(|\[parameters: ).*?" + _QUOTE_ENDS)


def mask_text(text: str) -> str:
    """Return `text` with addresses, tokens, passwords in URLs and rows quoted by PostgreSQL replaced."""
    if "://" in text:
        text = _URL_USER.sub(rf"\g<scheme>{MASK}@", text)
    if "@" in text:
        text = _E_MAIL.sub(MASK, text)
    if "+" in text:
        text = _PHONE.sub(MASK, text)
    if "eyJ" in text:
        text = _JWT.sub(MASK, text)
    if "ak_" in text:
        text = _API_KEY.sub(MASK, text)
    if " " in text:
        text = _BEARER.sub(rf"\1 {MASK}", text)
        text = _FAILING_ROW.sub(rf"\1{MASK}", text)
    return text


def is_private(key: str) -> bool:
    """Tell whether the value under `key` must never be logged, whatever it is."""
    lowered = key.lower()
    return lowered in _PRIVATE_KEYS or any(part in lowered for part in _PRIVATE_PARTS)


def mask(value: Any, depth: int = 4) -> Any:
    """Return `value` with private keys and private text replaced, in nested mappings and lists as well."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Mapping) and depth:
        return {key: MASK if is_private(str(key)) else mask(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [mask(item, depth - 1) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return mask_text(value if isinstance(value, str) else str(value))


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask a structlog event in place; a structlog processor.

    Keys that begin with an underscore belong to structlog's own machinery and are left to it.
    """
    for key, value in event.items():
        if key.startswith("_"):
            continue
        event[key] = MASK if is_private(key) else mask(value)
    return event
