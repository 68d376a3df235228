"""Reads the state of a running gateway: `penstock top`."""

import urllib.error
import urllib.request
from http.client import HTTPException

from penstock.errors import UsageError
from penstock.gateway.metrics_view import GatewayView, read_view


def read_gateway(metrics: str = "127.0.0.1:9464") -> GatewayView:
    """Read the metrics of a gateway once. `penstock top` does this repeatedly."""
    try:
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5) as answer:
            view = read_view(answer.read().decode("utf-8", "replace"))
    except (OSError, ValueError, HTTPException):
        raise UsageError(
            f"no gateway serves metrics on {metrics}; start one with `penstock route --metrics {metrics}`"
        ) from None
    if not view.endpoints and not view.pickers:
        raise UsageError(
            f"{metrics} answers, but is not the metrics page of a gateway; "
            "pass the --metrics address of `penstock route` (default 127.0.0.1:9464)"
        )
    return view
