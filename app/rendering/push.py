"""How large a push is on the wire. Apple and Google take 4,096 bytes and refuse more."""

import json
from collections.abc import Mapping

PUSH_BYTES = 4_096


def size(title: str, body: str, data: Mapping[str, str] | None = None) -> int:
    """Return the bytes of the JSON that carries a push, in UTF-8, with the envelope of the larger of both."""
    payload = {"aps": {"alert": {"title": title, "body": body}, "sound": "default"}, **(data or {})}
    return len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode())
