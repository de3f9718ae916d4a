"""Where a request came from: through proxies, and what of it may be kept."""

import pytest

from app.domain.origins import masked
from app.services.client_address import ClientAddress, counted_as, parse_networks


@pytest.mark.parametrize(
    ("trusted", "peer", "header", "client"),
    [
        ("", "198.51.100.9", "203.0.113.5", "198.51.100.9"),
        ("10.0.0.0/8", "198.51.100.9", "203.0.113.5", "198.51.100.9"),
        ("10.0.0.0/8", "10.0.0.2", "203.0.113.5", "203.0.113.5"),
        ("10.0.0.0/8", "10.0.0.2", "1.2.3.4, 203.0.113.5", "203.0.113.5"),
        ("10.0.0.0/8", "10.0.0.2", "1.2.3.4, 203.0.113.5, 10.1.1.1", "203.0.113.5"),
        ("10.0.0.0/8", "10.0.0.2", "10.9.9.9, 10.1.1.1", "10.9.9.9"),
        ("10.0.0.0/8", "10.0.0.2", "203.0.113.5, nonsense, 10.1.1.1", "10.1.1.1"),
        ("10.0.0.0/8", "10.0.0.2", "", "10.0.0.2"),
        ("10.0.0.0/8", "10.0.0.2", None, "10.0.0.2"),
        ("10.0.0.0/8", "10.0.0.2", "203.0.113.5:4711", "203.0.113.5"),
        ("10.0.0.0/8, ::1", "::1", "[2001:db8::7]:443", "2001:db8::7"),
        ("10.0.0.0/8", None, "203.0.113.5", None),
        ("10.0.0.0/8", "unix:", "203.0.113.5", "unix:"),
    ],
)
def test_only_our_proxies_say_who_the_client_is(trusted, peer, header, client):
    """The last address that one of ours did not vouch for is the client; what stands before it anybody may write.

    Fails when the first address of the header is believed: a client would choose whose failures are counted.
    """
    assert ClientAddress(parse_networks(trusted))(peer, header) == client


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("203.0.113.77", "203.0.113.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::/48"),
        ("::ffff:203.0.113.77", "203.0.113.0/24"),
        ("fe80::1%eth0", "fe80::/48"),
        ("", None),
        (None, None),
        ("localhost", None),
        ("203.0.113.77/8", None),
    ],
)
def test_of_an_address_its_network_is_kept(address, kept):
    """Never the whole of it, whatever form it has."""
    assert masked(address) == kept


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("203.0.113.77", "203.0.113.77"),
        ("::ffff:203.0.113.77", "203.0.113.77"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("unix:", None),
        (None, None),
    ],
)
def test_failures_are_counted_under_what_one_client_holds(address, name):
    """A client has a whole /64 of IPv6, and would take another address of it for each try."""
    assert counted_as(address) == name
