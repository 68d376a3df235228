"""Builds Envoy's HTTP filters, which strip reserved headers, ask a picker, and route the request."""

from typing import Final

from penstock.gateway.envoy.clusters import BUFFER_BYTES, PICKERS, Value
from penstock.gateway.state.headers import MODEL, STRIPPED, TENANT

_FILTERS: Final = "type.googleapis.com/envoy.extensions.filters.http"
MODEL_METADATA: Final = "penstock.model"
_PICKED: Final[Value] = {
    "single_predicate": {
        "input": {
            "name": "picked",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
                "header_name": MODEL,
            },
        },
        "value_match": {"safe_regex": {"google_re2": {}, "regex": ".+"}},
    }
}
_ASK_ANOTHER: Final[Value] = {
    # If a picker ends while it has a request, another picker answers, or the same picker after its restart (0.1 s).
    "retry_on": "connect-failure,refused-stream,reset,reset-before-request,5xx,unavailable",
    "num_retries": 10,
    "retry_back_off": {"base_interval": "0.05s", "max_interval": "0.5s"},
}
_CREDENTIALS: Final = ("authorization", "x-api-key", "cookie")
_SKIP: Final[Value] = {
    "name": "skip",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter"},
}


def strip_filter(*, reserved: bool, tenants: bool) -> Value | None:
    """Return a filter that removes headers from the client's request, or None if it would remove none.

    `reserved` is true if headers reserved for pickers are removed; the module inside Envoy removes them itself. If
    `tenants` is true, authentication sets the tenant header, and one from the client is removed.
    """
    names = (*(STRIPPED if reserved else ()), *(TENANT if tenants else ()))
    if not names:
        return None
    removed: list[Value] = [{"remove": name} for name in names]
    mutations = {"request_mutations": removed}
    return {
        "name": "penstock.strip",
        "typed_config": {"@type": f"{_FILTERS}.header_mutation.v3.HeaderMutation", "mutations": mutations},
    }


def ext_proc_filter(timeout_s: float, *, full_duplex: bool) -> Value:
    """Return a filter that asks a picker by ext_proc, the protocol of the Gateway API Inference Extension."""
    # Envoy cannot pass on a request whose body it no longer holds, so full-duplex streams fail closed.
    return {
        "name": "penstock.pick",
        "typed_config": {
            "@type": f"{_FILTERS}.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": PICKERS}, "retry_policy": _ASK_ANOTHER},
            "failure_mode_allow": not full_duplex,
            "message_timeout": f"{timeout_s}s",
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "FULL_DUPLEX_STREAMED" if full_duplex else "BUFFERED",
                "request_trailer_mode": "SEND" if full_duplex else "SKIP",
                "response_header_mode": "SKIP",
                "response_body_mode": "NONE",
                "response_trailer_mode": "SKIP",
            },
            # Pickers set timeouts and retries by x-envoy-* headers, which Envoy removes from client requests.
            "mutation_rules": {"allow_envoy": True},
            # Pickers need no credentials.
            "forward_rules": {"disallowed_headers": {"patterns": [{"exact": name} for name in _CREDENTIALS]}},
            "metadata_options": {"receiving_namespaces": {"untyped": ["envoy.lb"]}},
        },
    }


def module_config(folder: str, workers: int, library: str, tenant_bytes: int = 2**27) -> str:
    """Return the configuration of the module: a line each for folder, workers, library, reserved headers and budget."""
    return f"{folder}\n{workers}\n{library}\n{','.join(STRIPPED)},\n{BUFFER_BYTES} {tenant_bytes}"


def module_filter(folder: str, workers: int, tenant_bytes: int, module: str, library: str) -> Value:
    """Return a filter that chooses endpoints itself, by a module that Envoy loads.

    The module reads the gateway's tables in `folder`, and calls the policy of the compiled library. Bodies of a tenant
    may have `tenant_bytes` in memory, and all bodies twice as many.
    """
    value = module_config(folder, workers, library, tenant_bytes)
    config = {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": value}
    return {
        "name": "penstock.pick",
        "typed_config": {
            "@type": f"{_FILTERS}.dynamic_modules.v3.DynamicModuleFilter",
            # Its state outlives any listener.
            "dynamic_module_config": {"module": {"local": {"filename": module}}, "do_not_close": True},
            "filter_name": "penstock",
            "filter_config": config,
        },
    }


def model_filter() -> Value:
    """Return a filter that reads the model from the body if no picker answered.

    Without this filter, a request that no picker has seen could reach endpoints of another model.
    """
    reader = {
        "@type": f"{_FILTERS}.json_to_metadata.v3.JsonToMetadata",
        "request_rules": {
            "rules": [
                {
                    "selectors": [{"key": "model"}],
                    "on_present": {"metadata_namespace": MODEL_METADATA, "key": "model"},
                }
            ],
            "allow_content_types": ["application/json", "application/x-www-form-urlencoded", "text/plain"],
            "allow_empty_content_type": True,
        },
    }
    return {
        "name": "penstock.model",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher",
            "extension_config": {"name": "penstock.read_model", "typed_config": reader},
            "xds_matcher": {
                "matcher_list": {
                    "matchers": [{"predicate": _PICKED, "on_match": {"action": _SKIP}}],
                }
            },
        },
    }


def router_filter(tries: list[Value]) -> Value:
    """Return the router filter. `tries` holds access logs that report every try of a request, not only the last try."""
    config: Value = {"@type": f"{_FILTERS}.router.v3.Router", **({"upstream_log": tries} if tries else {})}
    return {"name": "envoy.filters.http.router", "typed_config": config}
