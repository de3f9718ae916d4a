"""The address of a client, seen through proxies that are ours.

`X-Forwarded-For` is what anybody may write. Only what a trusted proxy added to it counts: from the right, the
first address that is not one of ours is the client.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


class ClientAddress:
    """Tells clients' addresses. `trusted` are the networks of our proxies; without any the header is not read."""

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = tuple(trusted)

    def __call__(self, peer: str | None, forwarded_for: str | None) -> str | None:
        """Return the client's address as text, given who holds the connection and the header."""
        if not self._trusted or not forwarded_for or not self._is_ours(peer):
            return peer
        client = peer
        for hop in reversed(forwarded_for.split(",")):
            found = _address(hop)
            if found is None:
                break  # what stands left of something unreadable was not written by ours either
            client = found
            if not self._is_ours(client):
                break
        return client

    def _is_ours(self, text: str | None) -> bool:
        try:
            address = ip_address(text or "")
        except ValueError:
            return False
        return any(address in network for network in self._trusted)


def parse_networks(text: str) -> list[Network]:
    """Read `10.0.0.0/8, 192.0.2.7`; raise ValueError naming the part that cannot be read."""
    return [ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()]


def counted_as(address: str | None) -> str | None:
    """Return what a client's failures are counted under: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return None
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network(f"{str(parsed).partition('%')[0]}/64", strict=False))


def _address(hop: str) -> str | None:
    """Return the address of one entry of the header, without its port."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return None
