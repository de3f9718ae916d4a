"""Sealing: what is personal is encrypted before it reaches the database, and opened only where it is used.

AES-256-GCM. A sealed value begins with its form, the id of its key and the day on which it was sealed, so it can
be opened after the key in use has changed, and SQL can find what an older key sealed. Each day seals under a key
of its own, derived from the main one: random nonces are safe for about 2^32 messages a key, which the service's
full load would reach in three months, and no day comes near.

Every value is bound to a context (tenant, kind, row): copied into another row, it does not open. A blind index is
a keyed digest of an address, so that equal addresses can be found without storing what they are.
"""

import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORM = b"\x01"
_NONCE_BYTES = 12
_HEADER_BYTES = 5
_TAG_BYTES = 16
_INDEX_BYTES = 16
_DAY_SECONDS = 86_400
_DAYS_REMEMBERED = 512


class SealBrokenError(Exception):
    """A sealed value does not open: it is damaged, or was sealed for another row. The message names its key."""


class UnknownKeyError(Exception):
    """A value was sealed with a key that ENCRYPTION_KEYS does not hold here; the value itself may be whole."""


class Vault:
    """Seals and opens. `keys` by id are 32 bytes each; `sealing_key` is the id of the one that seals."""

    def __init__(self, keys: Mapping[int, bytes], sealing_key: int, index_key: bytes) -> None:
        self._keys = dict(keys)
        self._index_key = index_key
        self.sealing_key = sealing_key
        self._cipher = lru_cache(maxsize=_DAYS_REMEMBERED)(self._derive)

    def seal(self, context: bytes, plain: bytes) -> bytes:
        """Return `plain` sealed for `context`: 33 bytes longer."""
        day = int(time.time()) // _DAY_SECONDS
        header = _FORM + self.sealing_key.to_bytes(2, "big") + day.to_bytes(2, "big")
        nonce = os.urandom(_NONCE_BYTES)
        return header + nonce + self._cipher(header).encrypt(nonce, plain, header + context)

    def open(self, context: bytes, sealed: bytes) -> bytes:
        """Return what was sealed for `context`; raise SealBrokenError or UnknownKeyError."""
        if len(sealed) < _HEADER_BYTES + _NONCE_BYTES + _TAG_BYTES or sealed[:1] != _FORM:
            raise SealBrokenError("not a sealed value of a form that this version knows")
        header, nonce = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES]
        key_id = key_of(sealed)
        if key_id not in self._keys:
            raise UnknownKeyError(f"sealed with key {key_id}, which ENCRYPTION_KEYS does not hold")
        try:
            return self._cipher(header).decrypt(nonce, sealed[_HEADER_BYTES + _NONCE_BYTES :], header + context)
        except InvalidTag as error:
            raise SealBrokenError(f"does not open with key {key_id}: damaged, or of another row") from error

    def index(self, tenant_id: str, kind: str, text: str) -> bytes:
        """Return the blind index of an address in its normalised form, 16 bytes; tenants share none."""
        return hmac.digest(self._index_key, context(kind, tenant_id, text), hashlib.sha256)[:_INDEX_BYTES]

    def _derive(self, header: bytes) -> AESGCM:
        key_id = int.from_bytes(header[1:3], "big")
        return AESGCM(hmac.digest(self._keys[key_id], b"arauto day " + header[3:5], hashlib.sha256))


def context(kind: str, *parts: str) -> bytes:
    """Return what a value is bound to, such as `context("email", tenant_id, user_id)`; no two lists are alike."""
    return kind.encode() + b"".join(b"%d:%b" % (len(part.encode()), part.encode()) for part in parts)


def key_of(sealed: bytes) -> int:
    """Return the id of the key that sealed a value."""
    return int.from_bytes(sealed[1:3], "big")
