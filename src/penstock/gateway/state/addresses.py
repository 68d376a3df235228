"""Parses addresses, resolves DNS names, and names the pickers' sockets in the gateway's folder.

A DNS name can have several IP addresses. A headless Kubernetes Service has one address per ready pod.
"""

import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from penstock.errors import UsageError

_NO_ADDRESS: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""Error codes that mean that a DNS name has no address.

A missing answer from the DNS servers has a different error code.
"""


def split_address(address: str) -> tuple[str, int]:
    """Return the host and the port of an address `host:port`. The brackets around an IPv6 host are removed."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether a host can only be this machine."""
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)


def addresses_of(endpoint: str) -> tuple[str, ...]:
    """Return the IP addresses of an endpoint, sorted. The result is empty if the DNS name has no address at present."""
    try:
        host, port = split_address(endpoint)
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_ADDRESS:
            return ()
        raise _unknown(endpoint, error) from None
    except (OSError, UnicodeError, OverflowError) as error:
        raise _unknown(endpoint, error) from None
    family = entries[0][0]
    hosts = sorted({str(entry[4][0]) for entry in entries if entry[0] == family})
    return tuple(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts)


def address_of(endpoint: str) -> str:
    """Return an endpoint's first IP address.

    The DNS name is resolved in advance, so that no DNS lookup delays a request.
    """
    addresses = addresses_of(endpoint)
    if not addresses:
        raise _unknown(endpoint, "DNS has no address for the name")
    return addresses[0]


def _unknown(endpoint: str, reason: object) -> UsageError:
    return UsageError(f"endpoint {endpoint} has no address: {reason}; use an IP address, or a name that DNS resolves")


def picker_socket(folder: Path, number: int) -> str:
    """Return the path of the socket on which Envoy asks picker `number` to choose endpoints."""
    return str(folder / f"picker-{number}.sock")


def accepts_connections(address: str) -> bool:
    """Return whether an address accepts connections.

    A wildcard address is tested by a connection to the loopback address.
    """
    host, port = split_address(address)
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
    try:
        socket.create_connection((loopback, port), timeout=1.0).close()
    except OSError:
        return False
    return True
