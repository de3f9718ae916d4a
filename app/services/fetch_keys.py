"""Fetching an issuer's key set over HTTP, bounded in everything: time, size, and where it leads.

The time-out is for the whole of it, names and TLS included; one for each read would let a server that says a
letter at a time go on for ever. Nothing is unpacked, since a few bytes can stand for gigabytes, and a redirect
is not followed: the settings say where the keys are.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

_SIZE_LIMIT_BYTES = 262_144
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class FetchKeys:
    """Fetches the key set at `url`; for a thread of its own, since it runs an event loop."""

    url: str
    timeout_seconds: float

    def __call__(self) -> bytes:
        """Return the body; raise ValueError for one that cannot be it, TimeoutError, or what the client raises."""
        return asyncio.run(asyncio.wait_for(self._get(), self.timeout_seconds))

    async def _get(self) -> bytes:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.get(self.url, allow_redirects=False, headers=_HEADERS) as answer,
        ):
            if answer.status != HTTPStatus.OK:
                raise ValueError(f"the issuer answered {answer.status}")
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > _SIZE_LIMIT_BYTES:
                    raise ValueError("the key set is too large")
            return bytes(body)
