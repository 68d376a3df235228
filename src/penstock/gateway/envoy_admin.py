"""Reads Envoy's admin interface over a Unix socket that only this user can open."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any


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


def ask_admin(path: str, method: str, target: str, timeout_s: float = 2.0) -> str | None:
    """Send one request to the admin interface and return the response body, or None if Envoy does not answer."""
    if not Path(path).exists():
        return None
    connection = AdminConnection(path, timeout_s)
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
    entries = _json(path, f"/stats?format=json&filter={pattern}").get("stats", [])
    return {entry["name"]: float(entry["value"]) for entry in entries if "value" in entry}


def open_requests(path: str) -> dict[str, int] | None:
    """Return the number of Envoy's open requests per endpoint address, or None if Envoy does not answer."""
    clusters = _json(path, "/clusters?format=json").get("cluster_statuses")
    hosts = [host for cluster in clusters for host in cluster.get("host_statuses", [])] if clusters else []
    counts: dict[str, int] = {}
    for host in hosts:
        address = host.get("address", {}).get("socket_address")
        if address is not None:
            name = f"[{address['address']}]" if ":" in address["address"] else address["address"]
            values = {stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats", [])}
            counts[f"{name}:{address['port_value']}"] = values.get("rq_active", 0)
    return None if clusters is None else counts


def _json(path: str, target: str) -> dict[str, Any]:
    try:
        answer = json.loads(ask_admin(path, "GET", target) or "{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
