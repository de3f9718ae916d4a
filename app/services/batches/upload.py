"""Taking a list in pieces: each goes to the end of what is there, and one that is sent again changes nothing.

The offset of a piece says where it belongs, so a client that lost an answer sends the same piece again, and one
that lost its place asks how long the list is. Nothing is read of a list before it is started.
"""

import hashlib
from collections.abc import Callable

from app.db import batches
from app.db.requests import Cursor, RequestPool
from app.domain.batches import BatchState
from app.domain.callers import Caller
from app.sealing import Vault
from app.services.batches.manage import not_found
from app.services.batches.sources import as_parts
from app.services.refusal import Problem, Refused


class Upload:
    """The use cases of an upload. `wake` wakes the expander."""

    def __init__(self, pool: RequestPool, vault: Vault, wake: Callable[[], None], upload_limit: int) -> None:
        self._pool = pool
        self._vault = vault
        self._wake = wake
        self._upload_limit = upload_limit

    def append(self, caller: Caller, identifier: str, offset: int, data: bytes) -> int:
        """Store a piece that begins at `offset`; return the offset of the next one.

        Raises NotFound, and Refused for a piece that does not belong there or is not the one that was there.
        """
        digest = hashlib.sha256(data).digest()
        values = {
            "tenant_id": caller.tenant_id,
            "id": identifier,
            "start": offset,
            "length": len(data),
            "rows": data.count(b"\n"),
            "upload_limit": self._upload_limit,
            "digest": digest,
            **as_parts(self._vault, caller.tenant_id, identifier, offset, data),
        }

        def store(cursor: Cursor) -> tuple[int | None, batches.Uploaded | None]:
            length = batches.append(cursor, values)
            if length is not None:
                return length, None
            return None, batches.uploaded(cursor, caller.tenant_id, identifier, offset)

        length, found = self._pool.run(store)
        if length is not None:
            return length
        if found is None:
            raise not_found()
        return self._repeated(found, offset, data, digest)

    def _repeated(self, found: batches.Uploaded, offset: int, data: bytes, digest: bytes) -> int:
        if found.state != BatchState.UPLOADING:
            raise Refused("DOMAIN_BATCH_NOT_UPLOADING", f"The batch is {found.state}: its list is complete.")
        if found.digest is not None and found.whole == len(data) and found.digest == digest:
            return found.length
        if found.digest is not None:
            raise Refused(
                "DOMAIN_BATCH_PIECE_DIFFERS",
                "Another piece was sent for this offset.",
                [Problem("offset", f"go on at {found.length}")],
            )
        if found.length == offset:
            raise Refused(
                "DOMAIN_BATCH_TOO_LARGE",
                f"A list has at most {self._upload_limit} bytes; send the rest as another.",
            )
        raise Refused(
            "DOMAIN_BATCH_OFFSET",
            "The piece does not follow what is there.",
            [Problem("offset", f"go on at {found.length}")],
        )

    def start(self, caller: Caller, identifier: str) -> None:
        """Let the list be expanded; again is harmless. Raises NotFound, and Refused for an empty list."""

        def begin(cursor: Cursor) -> tuple[bool, batches.Uploaded | None]:
            has_begun = batches.start(cursor, caller.tenant_id, identifier)
            return has_begun, None if has_begun else batches.uploaded(cursor, caller.tenant_id, identifier, 0)

        has_begun, found = self._pool.run(begin)
        if has_begun:
            self._wake()
        elif found is None:
            raise not_found()
        elif found.state == BatchState.UPLOADING:
            raise Refused("DOMAIN_BATCH_EMPTY", "Nothing was uploaded yet.")
