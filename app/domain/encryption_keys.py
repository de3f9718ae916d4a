"""How keys are written in a setting: `ID:BASE64`, several with commas, the one that seals first."""

import base64
import binascii

_KEY_BYTES = 32
_KEY_ID_LIMIT = 0xFFFF


def parse_keys(text: str) -> tuple[dict[int, bytes], int]:
    """Read `2:BASE64,1:BASE64`; return the keys by id and the id of the first, which seals. Raises ValueError."""
    keys: dict[int, bytes] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, encoded = part.partition(":")
        if not name.isascii() or not name.isdigit() or not 0 < int(name) <= _KEY_ID_LIMIT:
            raise ValueError(f"each key is ID:BASE64, and its id a number from 1 to {_KEY_ID_LIMIT}")
        if int(name) in keys:
            raise ValueError(f"key {int(name)} is there twice")
        keys[int(name)] = parse_key(encoded)
    if not keys:
        raise ValueError("at least one key is needed; make one with: openssl rand -base64 32")
    return keys, next(iter(keys))


def parse_key(encoded: str) -> bytes:
    """Read one base64 key of 32 bytes; raise ValueError, which never quotes it."""
    try:
        key = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error as error:
        raise ValueError("a key is base64; make one with: openssl rand -base64 32") from error
    if len(key) != _KEY_BYTES:
        raise ValueError(f"a key is {_KEY_BYTES} bytes, this one is {len(key)}: openssl rand -base64 32 makes one")
    return key
