"""Options of `route` and `emulate`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from penstock.api.options.option_fields import argument, option, options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.api.options.file_types import AskedFleet
    from penstock.fleet.pools import Fleet


@options
class GatewayOptions:
    """Options of a gateway, as on the command line of `penstock route`."""

    _: KW_ONLY
    listen: str = option("Address for clients.", default="127.0.0.1:8080", metavar="HOST:PORT")
    pickers: int = option(
        "Number of picker processes, if Envoy asks pickers. Each uses one core.", default=1, metavar="N", min=1, max=64
    )
    workers: int | None = option(
        "Number of Envoy's worker threads. Default: the processors that the machine or the pod allows, at most 64.",
        default=None,
        metavar="N",
        min=1,
        max=64,
    )
    protocol: str | None = option(
        "How Envoy chooses endpoints: by its own module (module), or by asking a picker, as a stream (ext_proc) or "
        "with the whole body (ext_proc_buffered). Default: module; ext_proc_buffered where Envoy cannot load it; "
        "ext_proc with --only-pick.",
        default=None,
    )
    access_log: Path | str | None = option(
        "File that gets one JSON line per request, with the endpoint and the timings, but never with the request's "
        "text.",
        default=None,
    )
    metrics: str | None = option(
        "Address of the metrics page for Prometheus and `penstock top`.", default="127.0.0.1:9464", metavar="HOST:PORT"
    )
    receipts: Path | str | None = option(
        "File that records how every request ended, for `penstock bill`, and every thousandth decision with all its "
        "inputs, for `penstock receipts`.",
        default=None,
    )
    access: Path | str | None = option(
        "File of access rules: client keys or token issuers. Default: every client may send requests.", default=None
    )
    tls: tuple[str | Path, str | Path] | None = None
    """Paths of the certificate chain and its key, as PEM files."""
    traces: str | None = option(
        "Send OpenTelemetry spans to this OTLP/HTTP collector.", default=None, name="--otlp", metavar="URL"
    )
    trace_fraction: float = option("Fraction of requests that are traced.", default=0.01, metavar="0..1")
    only_pick: str | None = option(
        "Do not start Envoy; answer the ext_proc queries of your own gateway on this address.",
        default=None,
        metavar="HOST:PORT",
    )
    allow_paths: Sequence[str] = option(
        "Forward this path in addition to the inference paths. Repeat for more.",
        default=(),
        name="--allow-path",
        metavar="PATH",
    )
    follow_names: bool = option(
        "Resolve the DNS names of endpoints repeatedly, and route to all addresses of each name.", default=False
    )


@options
class EmulateOptions:
    """A fleet whose endpoints are mocked."""

    fleet: AskedFleet = argument("A fleet file; `penstock plan --fleet` writes one.")
    _: KW_ONLY
    port: int | None = option(
        "Port of the first replica on 127.0.0.1; other replicas get the next ports. Default: the fleet's endpoints.",
        default=None,
        metavar="N",
        min=1,
        max=65535,
    )
    control: str | None = option(
        "Address that accepts commands: faults and planted differences.", default=None, metavar="HOST:PORT"
    )
    speed: float = option(
        "Speed of the emulated engines, relative to real time.", default=1.0, metavar="N", min=0.001, max=1000
    )
    seed: int = option("Random seed. The same seed gives the same answer lengths.", default=0, metavar="N", min=0)
    ready: Callable[[Fleet], None] | None = None
