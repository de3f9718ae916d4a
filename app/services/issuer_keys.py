"""The public keys of whoever issues tokens, as published at a URL (a JWK Set, RFC 7517).

A key that is known goes on working while the issuer is away: the set is fetched again in the background, and a
fetch that failed changes nothing. A key that is not known makes one fetch, and whatever tokens claim there is no
second one before a pause is over, so that made-up key ids cannot flood the issuer. Requests that wait for a fetch
do so for a bounded time, and only some of the threads may, so that an issuer that hangs leaves the others free.
PyJWT has a client for this; it drops what it knows when a fetch fails, starts no pause then, reads without a limit
and makes all requests wait for one.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from app.observability import metrics
from app.observability.logging import get_logger
from app.services.refusal import Unauthenticated, Unavailable

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey
Fetch = Callable[[], bytes]

_RSA_LEAST_BITS = 2048
_IN_FLIGHT_RETRY_SECONDS = 1
_log = get_logger(__name__)


class IssuerKeys:
    """The keys as known to this process.

    `fetch` returns the published set in bounded time or raises. It is called in a thread of its own, by one at a
    time, no sooner than `pause_seconds` after it was last called, and again after `fresh_seconds`. `waiting_limit`
    requests may wait for it, `timeout_seconds` each.
    """

    def __init__(
        self,
        fetch: Fetch,
        algorithm: str,
        *,
        fresh_seconds: float,
        pause_seconds: float,
        timeout_seconds: float,
        waiting_limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._algorithm = algorithm
        self._fresh_seconds = fresh_seconds
        self._pause_seconds = pause_seconds
        self._timeout_seconds = timeout_seconds
        self._places = threading.BoundedSemaphore(waiting_limit)
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Mapping[str, PublicKey] = {}
        self._fetched_at = -math.inf
        self._next_fetch_at = -math.inf
        self._has_failed = False
        self._flight: threading.Event | None = None

    def find(self, kid: str) -> PublicKey:
        """Return the key of this id; raise Unauthenticated, or Unavailable when the issuer does not answer.

        A token that names no key (an empty `kid`) is checked with the one that is published without an id.
        """
        key = self._keys.get(kid)
        if key is None:
            return self._ask_for(kid)
        if self._clock() - self._fetched_at >= self._fresh_seconds:
            self._begin()
        return key

    def _ask_for(self, kid: str) -> PublicKey:
        flight = self._begin()
        if flight is not None and not self._wait(flight):
            raise _unavailable(_IN_FLIGHT_RETRY_SECONDS)
        key = self._keys.get(kid)
        if key is not None:
            return key
        if self._has_failed:
            raise _unavailable(max(math.ceil(self._next_fetch_at - self._clock()), 1))
        raise Unauthenticated("AUTH_TOKEN_INVALID", "The token's key is not one of the issuer's.")

    def _wait(self, flight: threading.Event) -> bool:
        if not self._places.acquire(blocking=False):
            return False
        try:
            return flight.wait(self._timeout_seconds)
        finally:
            self._places.release()

    def _begin(self) -> threading.Event | None:
        """Return the fetch that is under way, begun now if need be, or None while none may begin."""
        with self._lock:
            if self._flight is None and self._clock() >= self._next_fetch_at:
                self._next_fetch_at = self._clock() + self._pause_seconds
                self._flight = threading.Event()
                threading.Thread(target=self._renew, args=(self._flight,), name="issuer-keys", daemon=True).start()
            return self._flight

    def _renew(self, flight: threading.Event) -> None:
        try:
            self._keys = read_key_set(self._fetch(), self._algorithm)
            self._fetched_at = self._clock()
            self._has_failed = False
            metrics.ISSUER_FETCHES.labels("done").inc()
        except Exception as error:  # noqa: BLE001  whatever it is, the keys that are known go on
            self._has_failed = True
            metrics.ISSUER_FETCHES.labels("failed").inc()
            _log.warning("issuer_keys_not_fetched", reason=type(error).__name__, known=len(self._keys))
        finally:
            with self._lock:
                self._flight = None
            flight.set()


def _unavailable(retry_after_seconds: int) -> Unavailable:
    return Unavailable(
        "INFRA_ISSUER_UNAVAILABLE",
        "The keys of the tokens' issuer cannot be had now, so the token cannot be checked. Repeat the request.",
        retry_after_seconds,
    )


def read_key_set(raw: bytes, algorithm: str) -> dict[str, PublicKey]:
    """Return the keys of a JWK Set that may sign with `algorithm`, by id; raise ValueError where there is none.

    Keys for something else are passed over, as the RFC asks: others use the same set. So is a private key, which
    everybody could sign with once it is published.
    """
    found = orjson.loads(raw)
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise ValueError("not a JWK Set")  # noqa: TRY004  the text is wrong, not the program
    keys: dict[str, PublicKey] = {}
    for each in listed:
        if isinstance(each, dict) and isinstance(kid := each.get("kid", ""), str):
            key = _usable(each, algorithm)
            if key is not None:
                keys.setdefault(kid, key)
    if not keys:
        raise ValueError(f"the JWK Set has no key for {algorithm}")
    return keys


def _usable(jwk: dict[str, Any], algorithm: str) -> PublicKey | None:
    operations = jwk.get("key_ops", ["verify"])
    if (
        jwk.get("kty") != {"RS256": "RSA", "ES256": "EC"}.get(algorithm)
        or jwk.get("use", "sig") != "sig"
        or jwk.get("alg", algorithm) != algorithm
        or not (isinstance(operations, list) and "verify" in operations)
        or "d" in jwk
    ):
        return None
    try:
        key = jwt.PyJWK(jwk, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey):
        return key if key.key_size >= _RSA_LEAST_BITS else None
    return key if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1) else None
