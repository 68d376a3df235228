"""Free ports of the loopback interface, from a range that no other process of these tests takes."""

import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle

_FIRST, _END, _RANGE = 20_000, 32_000, 400
"""Below the ports that Linux gives to outgoing connections (from 32768 on)."""
_STRIDE = 16
"""Some servers also take the ports after the one they are given."""


def free_ports(count: int) -> list[int]:
    ports = _own_ports()
    return [next(port for port in ports if _is_free(port)) for _ in range(count)]


@cache
def _own_ports() -> Iterator[int]:
    """Claim a range by binding its first port for the life of this process."""
    for first in range(_FIRST, _END, _RANGE):
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
            continue
        claim.detach()
        return cycle(range(first + _STRIDE, first + _RANGE - _STRIDE, _STRIDE))
    raise OSError("every range of ports is taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
