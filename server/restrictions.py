"""authenticationRestrictions: from where a user may log in, and at which address of the server."""

import ipaddress
from collections.abc import Iterable
from typing import Any

from ..common.errors import UnsupportedFormat
from ..common.values import Document

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def allows(rows: Iterable[Document], peer: str, local: str) -> bool:
    """Whether one of the rows, or there being none, lets in who comes from `peer` to `local` (`address:port` both)."""
    rows = list(rows)
    return not rows or any(
        _within(row.get("clientSource"), peer) and _within(row.get("serverAddress"), local) for row in rows
    )


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address of `address:port`; None for what has none, such as a Unix socket."""
    host = name.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _within(networks: list[str] | None, name: str) -> bool:
    if networks is None:
        return True
    address = address_of(name)
    return address is not None and any(address in network_of(network) for network in networks)


def network_of(text: Any) -> Network:
    """A range of addresses from `address` or `address/bits`.

    Raises:
        UnsupportedFormat: it is none.
    """
    if not isinstance(text, str):
        raise UnsupportedFormat("CIDR range must be a string")
    address, slash, length = text.partition("/")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise UnsupportedFormat("Invalid IP address in CIDR string") from None
    if slash and not (length.isascii() and length.isdigit()):
        raise UnsupportedFormat("Non-numeric length in CIDR string")
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise UnsupportedFormat("Invalid length in CIDR string") from None
