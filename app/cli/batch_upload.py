"""Uploading a list of recipients in pieces, from where an earlier run stopped: what `arauto batch send` does.

The server says where the next piece begins, so nothing needs to be remembered here. A piece whose answer got lost
is sent again, which changes nothing.
"""

import hashlib
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError

from app.cli.client import Api

PIECE_BYTES = 1_048_576
_TRIES = 8
_PAUSE_SECONDS = 0.5
_WORTH_WAITING = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE}


def digest_of(path: Path) -> str:
    """Return what tells the content of a file from any other."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def upload(api: Api, batch_id: str, path: Path, offset: int, told: Callable[[int], None]) -> None:
    """Send a file from `offset` to its end; `told` hears after each piece how far it is, in bytes.

    An API that is away for a moment is asked again, for about a minute.
    """
    with path.open("rb") as file:
        file.seek(offset)
        while piece := file.read(PIECE_BYTES):
            offset = _send(api, f"/v1/notifications/batch/{batch_id}/rows?offset={offset}", piece, offset)
            told(offset)


def _send(api: Api, path: str, piece: bytes, offset: int) -> int:
    for left in reversed(range(_TRIES)):
        try:
            api.ask_raw("PUT", path, piece, Content_Type="application/octet-stream")
            return offset + len(piece)
        except HTTPError as error:
            if error.code not in _WORTH_WAITING or not left:
                api.give_up(error)
            error.close()
        except URLError:
            if not left:
                raise
        time.sleep(_PAUSE_SECONDS * 2 ** (_TRIES - 1 - left) / 2)
    return offset
