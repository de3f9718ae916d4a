"""Limits of requests: of a person by kind, of a tenant's services together, of failed sign-ins by address.

Everything fails open: without Redis nobody is refused. A person's request costs one round trip. A service's
costs one in some milliseconds: a process takes as many requests at once as came since its last look, and hands
them out.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from redis import RedisError

from app.domain.callers import Caller, Role
from app.domain.request_kinds import RequestKind
from app.limits.circuit import Circuit
from app.limits.requests import Quota, RequestWindows, Taken
from app.observability import metrics

SERVICE = "service"
SIGN_IN = "sign_in"

_MINUTE = 60.0
_MINUTE_SLOT = 2.0
_SECOND_SLOT = 0.025
_HOLD_SECONDS = 0.025
_SHARE_AT_ONCE = 20
"""A process takes at most the limit divided by this at once, so that others find some."""
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a caller stands with one limit after this request.

    `is_over` means refused. `back_in_seconds` is when more requests come back, above 0 where some are used.
    """

    name: str
    limit: int
    window_seconds: int
    left: int
    back_in_seconds: float
    is_over: bool


@dataclass(frozen=True)
class Quotas:
    """How many requests are allowed; 0 stands for any number. `tenants` have a number of their own a second."""

    users: Mapping[RequestKind, int]
    service: int
    tenants: Mapping[str, int]
    sign_in_failures: int


_NOTHING = Taken(0, 0, 0.0)


@dataclass(slots=True)
class _Allotment:
    """What this process took for a tenant and may still hand out until `ends_at` (monotonic seconds)."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    taken: Taken = _NOTHING
    unused: int = 0
    served: int = 0
    ends_at: float = 0.0


class LimitRequests:
    """The use case, for one process. Safe for threads; never raises for a Redis that is away."""

    def __init__(
        self,
        windows: RequestWindows,
        circuit: Circuit,
        quotas: Quotas,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._windows = windows
        self._circuit = circuit
        self._quotas = quotas
        self._clock = clock
        self._allotments: dict[str, _Allotment] = {}
        self._closed_until: dict[str, float] = {}

    def request(self, caller: Caller, kind: RequestKind) -> Standing | None:
        """Count a request and return where its caller stands; None when it is not counted now."""
        if caller.role is not Role.USER:
            limit = self._quotas.tenants.get(caller.tenant_id, self._quotas.service)
            return self._of_service(caller.tenant_id, limit) if limit else None
        limit = self._quotas.users[kind]
        if not limit:
            return None
        name = f"{_digest(caller.tenant_id, caller.subject)}:{kind.value}"
        taken = self._take(name, Quota(limit, _MINUTE, _MINUTE_SLOT), 1)
        return None if taken is None else _standing(kind.value, limit, _MINUTE, taken, is_over=not taken.granted)

    def failed_sign_in(self, address: str | None) -> Standing | None:
        """Count a sign-in that failed from this address; None unless there were too many by now."""
        limit = self._quotas.sign_in_failures
        if not limit or address is None:
            return None
        name = f"{SIGN_IN}:{_digest(address)}"
        # A flood is known from one answer until some come back, and asks nobody until then.
        left = self._closed_until.get(name, 0.0) - self._clock()
        if left > 0:
            return _standing(SIGN_IN, limit, _MINUTE, _NOTHING._replace(back_in_seconds=left), is_over=True)
        taken = self._take(name, Quota(limit, _MINUTE, _MINUTE_SLOT), 1)
        if taken is None or taken.granted:
            return None
        if len(self._closed_until) >= _REMEMBERED:
            self._closed_until.clear()
        self._closed_until[name] = self._clock() + taken.back_in_seconds
        return _standing(SIGN_IN, limit, _MINUTE, taken, is_over=True)

    def _of_service(self, tenant_id: str, limit: int) -> Standing | None:
        allotment = self._allotments.get(tenant_id)
        if allotment is None:
            if len(self._allotments) >= _REMEMBERED:
                self._allotments.clear()
            allotment = self._allotments.setdefault(tenant_id, _Allotment())
        with allotment.lock:
            allotment.served += 1
            if not allotment.unused or self._clock() >= allotment.ends_at:
                want = max(1, min(allotment.served, limit // _SHARE_AT_ONCE))
                quota = Quota(limit, 1.0, _SECOND_SLOT, _HOLD_SECONDS)
                taken = self._take(f"{SERVICE}:{_digest(tenant_id)}", quota, want)
                if taken is None:
                    return None
                # More of them in the next hold when all were used up early, fewer when it was quiet.
                is_early = self._clock() < allotment.ends_at
                allotment.served = allotment.served if is_early else 0
                allotment.taken, allotment.unused = taken, taken.granted
                allotment.ends_at = self._clock() + _HOLD_SECONDS
            taken, is_over = allotment.taken, not allotment.unused
            allotment.unused -= not is_over
            left = taken.left + allotment.unused
        return _standing(SERVICE, limit, 1.0, taken._replace(left=left), is_over=is_over)

    def _take(self, name: str, quota: Quota, want: int) -> Taken | None:
        if self._circuit.is_open():
            return None
        try:
            return self._windows.take(name, quota, want)
        except RedisError as error:
            self._circuit.failed(error)
            return None


def _standing(name: str, limit: int, window: float, taken: Taken, *, is_over: bool) -> Standing:
    if is_over:
        metrics.REQUESTS_LIMITED.labels(name).inc()
    return Standing(name, limit, int(window), taken.left, taken.back_in_seconds, is_over)


def _digest(*parts: str) -> str:
    """Return a name for Redis that any tenant and subject may have, and that tells neither."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
