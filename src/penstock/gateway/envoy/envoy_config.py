"""Builds Envoy's bootstrap, listener, routes and clusters for a fleet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from penstock.gateway.envoy.answer_reader import SEEN, answer_filter
from penstock.gateway.envoy.authentication import access_filter, jwks_cluster, tls_socket
from penstock.gateway.envoy.clusters import BUFFER_BYTES, Value, envoy_address, model_cluster, picker_cluster
from penstock.gateway.envoy.filters import (
    ext_proc_filter,
    model_filter,
    module_filter,
    router_filter,
    strip_filter,
)
from penstock.gateway.envoy.health_routes import health_filters, ready_cluster
from penstock.gateway.envoy.inference_paths import COMPLETIONS
from penstock.gateway.envoy.local_replies import local_replies
from penstock.gateway.envoy.routes import STREAM_IDLE_S, virtual_host
from penstock.gateway.envoy.tracing import Traces, collector_cluster, tracing_settings
from penstock.gateway.state.access_rules import Access, Certificate
from penstock.gateway.state.addresses import picker_socket
from penstock.gateway.state.headers import MODEL, PICKER, TENANT, TICKET
from penstock.gateway.state.refusals import REFUSED, WRONG
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.timeouts import SILENCE_S

PickProtocol = Literal["module", "ext_proc", "ext_proc_buffered"]
PICK_PROTOCOLS: Final[tuple[PickProtocol, ...]] = get_args(PickProtocol)
_MANAGER: Final = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
_ROUTES: Final = "fleet"
_SMALL_WINDOW, _CONNECTION_WINDOW = 2**18, 2**20
"""Bytes that a client may send over HTTP/2 before Envoy has read them: of one stream, and of one connection."""
_FILE_LOG: Final = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
ENDING: Final = f"%REQ({TICKET})% %RESPONSE_CODE% %RESPONSE_FLAGS% %UPSTREAM_HOST% %UPSTREAM_REQUEST_ATTEMPT_COUNT%\n"
"""Format of the access-log line that reports the end of a request to the picker that routed the request."""
OUTCOME: Final = f"{ENDING.rstrip()} %BYTES_SENT% {SEEN} %PATH(NQ)% %RESP(CONTENT-TYPE)%\n"
"""Format of that line if receipts are written: the bill needs the size, the tokens and the kind of the response."""
FAILED_TRY: Final = f"try %REQ({TICKET})% %UPSTREAM_HOST% %RESPONSE_CODE% %RESPONSE_FLAGS% %REQ({MODEL})%\n"
"""Format of the access-log line for a try that failed, or that reached an endpoint without the requested model."""


def _status(comparison: str, status: int) -> Value:
    value = {"default_value": status, "runtime_key": f"penstock.none_{status}"}
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


_ON_COMPLETIONS: Final[Value] = {
    "header_filter": {"header": {"name": ":path", "string_match": {"safe_regex": {"regex": f"{COMPLETIONS}(\\?.*)?"}}}}
}
_FAILED: Final[Value] = {
    "or_filter": {
        "filters": [
            _status("GE", 500),
            {"response_flag_filter": {"flags": ["UF", "UC", "UPE"]}},
            # On other paths, 404 means that the engine does not have the path.
            {"and_filter": {"filters": [_status("EQ", 404), _ON_COMPLETIONS]}},
            *(_status("EQ", status) for status in (*REFUSED, *WRONG)),
        ]
    }
}
_ACCESS: Final = {
    "at": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "path": "%PATH(NQ)%",
    "status": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "served": "%UPSTREAM_HOST%",
    "tries": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "ms": "%DURATION%",
    "bytes_in": "%BYTES_RECEIVED%",
    "bytes_out": "%BYTES_SENT%",
    "request": "%REQ(X-REQUEST-ID)%",
    "tenant": f"%REQ({TENANT[0]})%",
    "trace": "%TRACE_ID%",
}
"""Fields of the access-log line of a request. The fields include the endpoint, but never the content of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """Settings of the gateway that an operator may choose."""

    listen: str
    folder: Path
    """Folder for sockets, pipes and tables."""
    pickers: int
    protocol: PickProtocol = "ext_proc_buffered"
    """How Envoy finds endpoints: by a module that it loads, or by asking a picker."""
    pick_timeout_s: float = 0.25
    access_log: str | None = None
    receipts: str | None = None
    """Path prefix of the receipt files; each picker writes one file. If None, no receipts are written."""
    receipt_every: int = 1000
    metrics: str | None = None
    """Address on which the gateway serves its metrics page. If None, the gateway serves no metrics page."""
    access_file: Path | None = None
    """Path of the access file, which is read again when it changes. If None, every client has access."""
    certificate: Certificate | None = None
    """TLS certificate for clients. If None, the gateway uses no TLS."""
    traces: Traces | None = None
    """Trace collector. If None, no spans are sent."""
    only_pick: str | None = None
    """Address on which pickers serve an external gateway. If None, the supervisor starts its own Envoy."""
    more_paths: tuple[str, ...] = ()
    """Paths that the gateway forwards in addition to the inference paths."""
    min_silence_s: float = SILENCE_S
    """Minimum seconds of silence of an endpoint before Envoy tries another one too."""
    concurrency: int | None = None
    """Number of Envoy's worker threads. If None, Envoy starts one worker thread per core."""
    pick: bool = True
    """Whether pickers choose endpoints. If False, Envoy chooses endpoints by weight, as a baseline for measurements."""
    memory_bytes: int = 4 * 2**30
    """Memory that the gateway may use. Envoy's heap may have half of it, and bodies of one tenant an eighth."""
    module: tuple[str, str] = ("", "")
    """Paths of the module inside Envoy and of the compiled library that it calls, with the protocol `module`."""

    @property
    def inside(self) -> bool:
        """Whether a module inside Envoy chooses endpoints. Then each of Envoy's worker threads counts as a picker."""
        return self.pick and self.protocol == "module"

    @property
    def sample_every(self) -> int:
        """Every such decision of the module is recorded with all its inputs; 0: none."""
        return self.receipt_every if self.receipts is not None else 0

    def pipe(self, number: int) -> str:
        """Return the path of the pipe through which Envoy reports ended requests to picker `number`."""
        return str(self.folder / f"endings-{number}.pipe")

    @property
    def admin(self) -> str:
        """Path of Envoy's admin socket, which only this user can open."""
        return str(self.folder / "admin.sock")

    def watched_source(self, name: str) -> Value:
        """Return the configuration source for a file that Envoy reads again when the file changes."""
        folder = str(self.folder / "xds")
        source = {"path": f"{folder}/{name}.json", "watched_directory": {"path": folder}}
        return {"resource_api_version": "V3", "path_config_source": source}


def bootstrap(settings: EnvoySettings) -> Value:
    """Return Envoy's bootstrap. The bootstrap refers to other files, which Envoy reads again when they change."""
    return {
        "node": {"id": "penstock", "cluster": "penstock"},
        "admin": {"address": {"pipe": {"path": settings.admin, "mode": 0o600}}},
        "dynamic_resources": {
            "lds_config": settings.watched_source("lds"),
            "cds_config": settings.watched_source("cds"),
        },
        "overload_manager": _overload_manager(settings.memory_bytes // 2),
    }


def _overload_manager(heap_bytes: int) -> Value:
    """Return what Envoy does as its heap fills up: it frees pages, resets the largest streams, and refuses requests."""
    monitors = (
        ("global_downstream_max_connections", "downstream_connections.v3.DownstreamConnectionsConfig"),
        ("fixed_heap", "fixed_heap.v3.FixedHeapConfig"),
    )
    limits = ({"max_active_downstream_connections": 100_000}, {"max_heap_size_bytes": heap_bytes})
    shrink, full = {"threshold": {"value": 0.8}}, {"threshold": {"value": 0.95}}
    largest = {"scaled": {"scaling_threshold": 0.85, "saturation_threshold": 0.95}}
    actions = {"shrink_heap": shrink, "reset_high_memory_stream": largest, "stop_accepting_requests": full}
    return {
        "refresh_interval": "0.1s",
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": 20},
        "resource_monitors": [
            {
                "name": f"envoy.resource_monitors.{name}",
                "typed_config": {"@type": f"type.googleapis.com/envoy.extensions.resource_monitors.{kind}", **limit},
            }
            for (name, kind), limit in zip(monitors, limits, strict=True)
        ],
        "actions": [
            {
                "name": f"envoy.overload_actions.{name}",
                "triggers": [{"name": "envoy.resource_monitors.fixed_heap", **when}],
            }
            for name, when in actions.items()
        ],
    }


def listeners(fleet: RoutedFleet, settings: EnvoySettings, access: Access | None = None) -> Value:
    """Return the listener that accepts connections from clients."""
    manager = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": _manager(fleet, settings, access),
    }
    chain: Value = {"filters": [manager]}
    if settings.certificate is not None:
        chain["transport_socket"] = tls_socket(settings.watched_source("sds"))
    listener = {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "clients",
        "address": envoy_address(settings.listen),
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        # A failing health check must not send GOAWAY: Python's HTTP/2 client drops the whole connection then.
        "drain_type": "MODIFY_ONLY",
        "filter_chains": [chain],
    }
    return {"version_info": "1", "resources": [listener]}


def routes(fleet: RoutedFleet, settings: EnvoySettings, access: Access | None = None) -> Value:
    """Return the routes to models.

    Routes are kept outside the listener, so that a change of routes closes no connection.
    """
    protocol = settings.protocol if settings.pick else None
    silence = {"silence_s": settings.min_silence_s} if settings.inside else {}
    host = virtual_host(fleet, protocol=protocol, access=access, more_paths=settings.more_paths, **silence)
    kind = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    return {"version_info": "1", "resources": [{"@type": kind, "name": _ROUTES, "virtual_hosts": [host]}]}


def clusters(fleet: RoutedFleet, settings: EnvoySettings, access: Access | None = None) -> Value:
    """Return all of Envoy's clusters. The endpoints of the clusters are in separate files."""
    folder = str(settings.folder / "xds")
    places = (
        [settings.only_pick]
        if settings.only_pick
        else [picker_socket(settings.folder, n) for n in range(settings.pickers)]
    )
    configs = [model_cluster(number, f"{folder}/eds-{number}.json", folder) for number in range(len(fleet.names))]
    if not settings.inside:
        configs.append(picker_cluster(places))
    if settings.only_pick is None:
        configs.append(ready_cluster(settings.folder))
    if access is not None and access.tokens is not None and access.tokens.fetched:
        configs.append(jwks_cluster(access.tokens))
    if settings.traces is not None:
        configs.append(collector_cluster(settings.traces))
    kind = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    return {"version_info": "1", "resources": [{"@type": kind, **cluster} for cluster in configs]}


def _manager(fleet: RoutedFleet, settings: EnvoySettings, access: Access | None) -> Value:
    models = [model_filter()] if len(fleet.names) > 1 and not settings.inside else []
    pick, only_model = _pick_filter(fleet, settings), fleet.names[0] if len(fleet.names) == 1 else ""
    access_filters = [access_filter(access)] if access is not None else []
    answers = [answer_filter()] if settings.receipts is not None and _logging_pickers(settings) else []
    strip = strip_filter(reserved=not settings.inside, tenants=access is not None)
    stripped = [] if strip is None else [strip]
    filters = [*stripped, *access_filters, pick, *models, *answers] if settings.pick else access_filters
    return {
        "@type": _MANAGER,
        "stat_prefix": "clients",
        "use_remote_address": True,
        # No address is internal: an internal client could set retries and timeouts. An empty list would mean all
        # addresses.
        "internal_address_config": {"cidr_ranges": [{"address_prefix": "255.255.255.255", "prefix_len": 32}]},
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "server_name": "penstock",
        "request_headers_timeout": "10s",
        "request_timeout": "120s",
        "stream_idle_timeout": f"{STREAM_IDLE_S}s",
        "common_http_protocol_options": {"idle_timeout": "600s"},
        "http2_protocol_options": {
            "max_concurrent_streams": 100,
            # Envoy buffers at most this much of a body. The module sets the limit of a body itself.
            "initial_stream_window_size": _SMALL_WINDOW if settings.inside else BUFFER_BYTES,
            "initial_connection_window_size": _CONNECTION_WINDOW if settings.inside else BUFFER_BYTES,
        },
        # An external Envoy does not learn which endpoints are up.
        "http_filters": [
            *health_filters(has_readiness=settings.only_pick is None),
            *filters,
            router_filter(_failed_tries(settings)),
        ],
        "rds": {"route_config_name": _ROUTES, "config_source": settings.watched_source("rds")},
        "local_reply_config": local_replies(),
        "access_log": _logs(settings),
        **(tracing_settings(settings.traces, only_model) if settings.traces is not None else {}),
    }


def _pick_filter(fleet: RoutedFleet, settings: EnvoySettings) -> Value:
    if settings.protocol == "module":
        return module_filter(str(settings.folder), settings.pickers, settings.memory_bytes // 8, *settings.module)
    waits_s = 0.0 if settings.only_pick is not None else 2 * fleet.hold_s + fleet.wake_hold_s
    return ext_proc_filter(settings.pick_timeout_s + waits_s, full_duplex=settings.protocol == "ext_proc")


def _failed_tries(settings: EnvoySettings) -> list[Value]:
    return [
        _log(
            settings.pipe(number),
            {"text_format_source": {"inline_string": FAILED_TRY}},
            {"and_filter": {"filters": [_FAILED, _of_picker(number)]}},
        )
        for number in range(_logging_pickers(settings))
    ]


def _logging_pickers(settings: EnvoySettings) -> int:
    return settings.pickers if settings.pick and settings.only_pick is None and not settings.inside else 0


def _of_picker(number: int) -> Value:
    return {"header_filter": {"header": {"name": PICKER, "string_match": {"exact": str(number)}}}}


def _logs(settings: EnvoySettings) -> list[Value]:
    ending = ENDING if settings.receipts is None else OUTCOME
    logs = [
        _log(settings.pipe(number), {"text_format_source": {"inline_string": ending}}, _of_picker(number))
        for number in range(_logging_pickers(settings))
    ]
    if settings.access_log is not None:
        logs.append(_log(settings.access_log, {"json_format": _ACCESS}, None))
    return logs


def _log(path: str, line: Value, only: Value | None) -> Value:
    config = {"@type": _FILE_LOG, "path": path, "log_format": line}
    entry: Value = {"name": "envoy.access_loggers.file", "typed_config": config}
    return entry if only is None else {**entry, "filter": only}
