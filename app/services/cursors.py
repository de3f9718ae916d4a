"""Cursors of lists: where a page ended, in a form that only we can make.

A cursor is signed, so that a client cannot ask for a place that no page ended at, and it is bound to the list and
the tenant that it was made for. It says where to go on, never who may see what is there.
"""

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

_SIGNATURE_BYTES = 16
_LENGTH_LIMIT = 1536
"""A place may be a user's id: 255 characters, of four bytes each."""


class Cursors:
    """Makes and reads cursors under one secret, from which a key of their own is derived."""

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), b"arauto cursor", hashlib.sha256)

    def make(self, scope: str, place: str) -> str:
        """Return the cursor of `place` in the list that `scope` names."""
        signature = self._sign(scope, place.encode())
        return urlsafe_b64encode(signature + place.encode()).rstrip(b"=").decode()

    def read(self, scope: str, cursor: str) -> str:
        """Return the place of a cursor that `make` returned for this list; raise ValueError for any other text."""
        if len(cursor) > _LENGTH_LIMIT:
            raise ValueError("too long")
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        except (binascii.Error, UnicodeEncodeError) as error:
            raise ValueError("not base64") from error
        signature, place = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        # Decoders pass over letters that they do not know, so what was read must also be what would be written.
        if (
            not hmac.compare_digest(signature, self._sign(scope, place))
            or self.make(scope, place.decode()) != cursor
        ):
            raise ValueError("not a cursor of this list")
        return place.decode()

    def _sign(self, scope: str, place: bytes) -> bytes:
        return hmac.digest(self._key, scope.encode() + b"\0" + place, hashlib.sha256)[:_SIGNATURE_BYTES]
