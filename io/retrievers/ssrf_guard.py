"""Which addresses may be reached: a search result must not send requests to machines on the private network.

The guard sits where sockets are made, so what is checked is the very address that is connected to, whatever led there:
a name and its DNS, a redirect, an odd spelling such as `0x7f000001`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from yarl import URL

from fcjax.core.errors import SettingsError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

REFUSED: Final = -7
"""The `errno` of the `OSError` by which the guard refuses an address; no system has it."""

_OURS: Final = ip_network("2000::/3")  # all that is given out of IPv6
# IANA's special-purpose registries, as of 2025, and multicast. Python's own tables (`is_global`) differ by version, so
# an address must pass both. The exceptions within these networks, such as 192.0.0.9, serve no web pages.
_SPECIAL: Final = tuple(
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 serves the metadata of a cloud
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # a public address where Azure serves its own machines
        *("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"),  # of IPv4; what they embed is looked at before
        *("100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16"),
        *("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)
_HOST: Final = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)
_TRANSLATED: Final = ip_network("64:ff9b::/96")  # NAT64: an IPv4 address in the last four bytes


class LinkError(ValueError):
    """A link that is not followed: `private` where the guard refuses it, else `bad_link`."""

    def __init__(self, reason: str, kind: str = "bad_link"):
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses addresses that are not on the public internet, except those in `private`."""

    private: tuple[Network, ...] = ()

    @classmethod
    def letting(cls, private: Iterable[str]) -> Guard:
        """A guard that admits some networks, such as `10.20.0.0/16` for an intranet. Raises `SettingsError`."""
        try:
            return cls(tuple(map(ip_network, private)))
        except ValueError as error:
            raise SettingsError(f"private: {error}; allowed: networks such as 10.20.0.0/16") from error

    def admits(self, address: Address) -> bool:
        """Whether an address may be connected to."""
        plain = IPv6Address(int(address)) if isinstance(address, IPv6Address) else address  # without its zone
        return is_public(plain) or any(plain in network for network in self.private)

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket for the address of `info`, as `aiohttp.TCPConnector(socket_factory=...)` wants it.

        Raises `OSError` with the number `REFUSED`.
        """
        family, kind, protocol, _, place = info
        if not self.admits(ip_address(place[0])):
            raise OSError(REFUSED, f"{place[0]} is not an address on the public internet")
        return socket.socket(family=family, type=kind, proto=protocol)

    def check(self, link: str) -> URL:
        """The URL of a link that may be followed, judged by its text alone. Raises `LinkError`."""
        try:
            url = URL(link)
            host, scheme, port = url.raw_host, url.scheme, url.explicit_port
        except (ValueError, TypeError) as error:
            raise LinkError(f"{link!r:.200} is not a URL ({error})") from error
        if scheme not in ("http", "https"):
            raise LinkError(f"{link!r:.200} is not the address of a web page; allowed: http and https")
        address = literal(host or "")
        if not host or port == 0 or (address is None and not _HOST.fullmatch(host)):
            raise LinkError(f"{link!r:.200} does not name a reachable host")
        if url.raw_user is not None or url.raw_password is not None:
            raise LinkError(f"the link to {host} contains a user name or password; allowed: links without them")
        if address is not None and not self.admits(address):
            raise LinkError(f"{host} is not an address on the public internet", "private")
        if address is None and _is_local_name(host) and not self.private:
            raise LinkError(f"{host} is the name of a private network", "private")
        return url


def is_public(address: Address) -> bool:
    """Whether an address is reached over the public internet.

    Not so are loopback, private, link-local, shared (CGNAT), multicast and reserved ones, and their forms in IPv6.
    """
    if isinstance(address, IPv6Address):
        if address.teredo is not None:
            return all(map(is_public, address.teredo))  # the relay and the machine behind it
        if (inner := _inner(address)) is not None:
            return is_public(inner)
        if address not in _OURS:
            return False
    usual = address.is_global and not (address.is_multicast or address.is_reserved or address.is_private)
    return usual and not any(address in network for network in _SPECIAL)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for: mapped, compatible, 6to4 or translated."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    number = int(address)
    if address in _TRANSLATED or 1 < number < 2**32:
        return IPv4Address(number & 0xFFFF_FFFF)
    return None


def literal(host: str) -> Address | None:
    """The address that a host spells out, in any way that the system's resolver takes; None for a name."""
    host = host.rstrip(".")
    try:
        return ip_address(host.replace("%25", "%"))
    except ValueError:
        pass
    if not host or not host.isascii() or not set(host.lower()) <= set("0123456789abcdefx."):
        return None
    try:
        return IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f000001, 2130706433, 0177.0.0.1
    except OSError:
        return None


def _is_local_name(host: str) -> bool:
    name = host.lower().rstrip(".")
    return name == "localhost" or name.endswith((".localhost", ".local", ".internal", ".home.arpa"))
