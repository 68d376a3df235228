"""Where do pickers listen? Sockets in the gateway's folder, which Envoy connects to."""

from pathlib import Path


def picker_socket(folder: Path, number: int) -> str:
    """Return where a picker is asked for endpoints."""
    return str(folder / f"picker-{number}.sock")


def liveness_socket(folder: Path, number: int) -> str:
    """Return where a picker is asked whether silent endpoints are alive."""
    return str(folder / f"alive-{number}.sock")
