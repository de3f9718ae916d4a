"""The form of an API key: `ak_`, 12 hexadecimal digits, `_`, and 72 more.

The first part is the prefix, which is shown and looked up. The second is a secret of 256 bits and a check sum over
all before it, so that a scanner of code and logs can tell a key from its like, and a mistyped one is refused
without a look into the table. The secret is random and not chosen by a person, so one SHA-256 is enough to store.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from zlib import crc32

MARK = "ak_"

_PREFIX_BYTES = 6
_SECRET_BYTES = 32
_FORM = re.compile(r"((ak_[0-9a-f]{12})_[0-9a-f]{64})([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, repr=False)
class NewKey:
    """A key that was just made. `text` is the key itself: shown once, never stored."""

    prefix: str
    text: str


def mint() -> NewKey:
    """Return a new key."""
    prefix = f"{MARK}{secrets.token_hex(_PREFIX_BYTES)}"
    body = f"{prefix}_{secrets.token_hex(_SECRET_BYTES)}"
    return NewKey(prefix, body + _check_sum(body))


def prefix_of(text: str) -> str | None:
    """Return the prefix of a key, or None for a text that cannot be one."""
    match = _FORM.fullmatch(text)
    return match[2] if match and match[3] == _check_sum(match[1]) else None


def digest(text: str) -> bytes:
    """Return what is stored of a key: 32 bytes, from which it cannot be found again."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def _check_sum(body: str) -> str:
    return f"{crc32(body.encode()):08x}"
