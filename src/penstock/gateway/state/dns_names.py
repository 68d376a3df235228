"""Resolves names to all their addresses. A headless Kubernetes Service has one address per ready pod."""

import socket
from typing import Final

from penstock.errors import UsageError

_GONE: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""Errors for a name without an address, as opposed to a DNS server that does not answer."""


def addresses_of(endpoint: str) -> tuple[str, ...]:
    """Return an endpoint's sorted addresses of one family; empty if the name has none at present."""
    host, _, port = endpoint.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _GONE:
            return ()
        raise _unknown(endpoint, error) from None
    except (OSError, UnicodeError, OverflowError) as error:
        raise _unknown(endpoint, error) from None
    family = found[0][0]
    hosts = sorted({str(entry[4][0]) for entry in found if entry[0] == family})
    return tuple(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts)


def address_of(endpoint: str) -> str:
    """Return an endpoint's first IP address, so that no DNS lookup delays a request."""
    found = addresses_of(endpoint)
    if not found:
        raise _unknown(endpoint, "DNS has no address for the name")
    return found[0]


def _unknown(endpoint: str, reason: object) -> UsageError:
    return UsageError(f"endpoint {endpoint} has no address: {reason}; write an IP address, or a name that DNS resolves")
