"""Where the work of this thread comes from: the request that it answers, for the audit log."""

from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

_IPV4_KEPT_BITS = 24
_IPV6_KEPT_BITS = 48


@dataclass(frozen=True, slots=True)
class Origin:
    """The request at hand. `address` is the client's, whole: only `network` may be kept. None where unknown."""

    address: str | None = None
    trace_id: str | None = None

    @property
    def network(self) -> str | None:
        """What may be kept of the address."""
        return masked(self.address)


NOWHERE = Origin()
_current: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)


def current() -> Origin:
    """Return the origin of the work at hand."""
    return _current.get()


def enter(origin: Origin) -> None:
    """Say where the work that this thread does from now on comes from."""
    _current.set(origin)


def masked(address: str | None) -> str | None:
    """Return the network of an address, /24 of an IPv4 and /48 of an IPv6 one; None for what is no address.

    An IPv4 address in the form of an IPv6 one is taken as what it is, else all of them would be one network.
    """
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return None
    mapped = getattr(parsed, "ipv4_mapped", None)
    parsed = mapped or parsed
    bits = _IPV4_KEPT_BITS if parsed.version == 4 else _IPV6_KEPT_BITS  # noqa: PLR2004
    return str(ip_network(f"{parsed.compressed.partition('%')[0]}/{bits}", strict=False))
