"""Paths of the pickers' sockets in the gateway's folder, to which Envoy connects."""

from pathlib import Path


def picker_socket(folder: Path, number: int) -> str:
    """Return the path of the socket on which a picker chooses endpoints."""
    return str(folder / f"picker-{number}.sock")


def liveness_socket(folder: Path, number: int) -> str:
    """Return the path of the socket on which a picker says whether silent endpoints are alive."""
    return str(folder / f"alive-{number}.sock")
