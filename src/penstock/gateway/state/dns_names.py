"""Where is a name? Every address it has: a headless Service of Kubernetes has one for each pod that is ready."""

import socket
from typing import Final

from penstock.errors import UsageError

_GONE: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""The name is known to have no address, unlike a name server that does not answer."""


def addresses_of(endpoint: str) -> tuple[str, ...]:
    """Return an endpoint's addresses, of one family and in order; none where the name has none at present."""
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
    """Name an endpoint by its IP address: a destination is never looked up while requests wait."""
    found = addresses_of(endpoint)
    if not found:
        raise _unknown(endpoint, "the name is not known")
    return found[0]


def _unknown(endpoint: str, reason: object) -> UsageError:
    return UsageError(f"endpoint {endpoint} has no address: {reason}; write an IP address, or a name that is known")
