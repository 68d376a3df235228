"""What does Envoy say of itself? Its admin interface, over a socket only we can open."""

import http.client
import json
import socket
from pathlib import Path


class AdminConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float = 2.0) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask_admin(path: str, method: str, target: str) -> str | None:
    """Ask once; None where nobody answers."""
    if not Path(path).exists():
        return None
    connection = AdminConnection(path)
    try:
        connection.request(method, target)
        return connection.getresponse().read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def envoy_ready(path: str) -> bool:
    """Whether Envoy has its configuration and serves."""
    return (ask_admin(path, "GET", "/ready") or "").startswith("LIVE")


def stats(path: str, pattern: str) -> dict[str, float]:
    """Envoy's counters and gauges whose names match a regular expression."""
    said = ask_admin(path, "GET", f"/stats?format=json&filter={pattern}")
    try:
        entries = json.loads(said or "{}").get("stats", [])
    except ValueError:
        return {}
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}
