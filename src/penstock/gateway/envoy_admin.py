"""Reads Envoy's admin interface over a Unix socket that only this user can open."""

import http.client
import json
import socket
from pathlib import Path


class AdminConnection(http.client.HTTPConnection):
    """HTTP connection over a Unix socket."""

    def __init__(self, path: str, timeout_s: float = 2.0) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask_admin(path: str, method: str, target: str) -> str | None:
    """Send one request to the admin interface and return the response body, or None if Envoy does not answer."""
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
    """Return whether Envoy has loaded its configuration and is serving."""
    return (ask_admin(path, "GET", "/ready") or "").startswith("LIVE")


def stats(path: str, pattern: str) -> dict[str, float]:
    """Return Envoy's counters and gauges whose names match a regular expression."""
    answer = ask_admin(path, "GET", f"/stats?format=json&filter={pattern}")
    try:
        entries = json.loads(answer or "{}").get("stats", [])
    except ValueError:
        return {}
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}
