"""Builds the routes to the clusters of models.

The picker names the model in a header. If no picker answered, the model comes from the request body.
"""

import json
from collections.abc import Sequence
from typing import Final, cast

from penstock.gateway.envoy.authentication import key_credentials
from penstock.gateway.envoy.clusters import Value, cluster_name
from penstock.gateway.envoy.filters import MODEL_METADATA
from penstock.gateway.envoy.inference_paths import COMPLETIONS, INFERENCE, STORED, match_none_of
from penstock.gateway.state.access_rules import Access
from penstock.gateway.state.headers import MODEL, STREAMED
from penstock.gateway.state.refusals import REFUSED
from penstock.gateway.state.routed_fleet import RoutedFleet, list_names

_RETRY: Final[Value] = {
    # In all these cases, no byte has reached the client, and sending the request again does no harm.
    "retry_on": "connect-failure,refused-stream,reset,reset-before-request,gateway-error,retriable-status-codes,"
    "envoy-ratelimited",  # else the 429 of another Envoy in front of an engine is final
    "retriable_status_codes": [*REFUSED, 500],
    # If no picker sets the number of retries, there are four tries in total.
    "num_retries": 3,
    "retry_host_predicate": [
        {
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
            },
        }
    ],
    "host_selection_retry_max_attempts": 5,
    # The next try goes to another endpoint, so it need not be delayed.
    "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.01s"},
}
_OF_COMPLETIONS: Final[Value] = {"retriable_status_codes": [*REFUSED, 404, 500]}
"""On completion paths, 404 means that the engine does not know the model. On other paths, a 404 is not retried."""
_UNKNOWN_SILENCE_S: Final = 120.0
_HEDGE: Final[Value] = {"hedge_on_per_try_timeout": True}
"""Hedge policy. A silent try continues when another try begins, and Envoy uses the first response from any try."""
STREAM_IDLE_S: Final = 900
"""Seconds without data after which Envoy closes a stream that has started."""
_WHOLE_IDLE_S: Final = 4 * 3600
"""Idle timeout of an unstreamed response, in seconds. An unstreamed response sends no data until its last token."""
_READ: Final[Value] = {"name": ":method", "string_match": {"safe_regex": {"regex": "GET|HEAD"}}}
_POST: Final[Value] = {"name": ":method", "string_match": {"exact": "POST"}}
_STREAMED: Final[Value] = {"name": STREAMED, "present_match": True}
_NOT_INFERENCE: Final = (
    "Not Found: this gateway forwards only inference paths; the operator can add a path with --allow-path"
)
_NO_SUCH_MODEL: Final = "The model does not exist; /v1/models lists the models."
_NOT_STORED: Final = (
    "Not Found: only the endpoint that made a stored response has it, and this fleet has several endpoints; "
    "send the whole conversation with each request"
)
_NO_PICK_MODULE: Final[Value] = {
    "penstock.pick": {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": True}
}
_NO_PICK_GRPC: Final[Value] = {
    "penstock.pick": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "disabled": True,
    }
}


def virtual_host(
    fleet: RoutedFleet,
    *,
    protocol: str | None,
    access: Access | None = None,
    more_paths: Sequence[str] = (),
    silence_s: float = _UNKNOWN_SILENCE_S,
) -> Value:
    """Return all routes in order of precedence. Routes on which Envoy replies itself do not ask a picker.

    `more_paths` are forwarded in addition to the inference paths. After `silence_s` without a byte, another endpoint is
    tried too, unless a header of the request says when.
    """
    off: Value = {} if protocol is None else _NO_PICK_MODULE if protocol == "module" else _NO_PICK_GRPC
    routes: list[Value] = [
        _direct({"path": "/v1/models", "headers": [_READ]}, 200, models_body(fleet), off),
        *(
            _direct({"path": f"/v1/models/{name}", "headers": [_READ]}, 200, json.dumps(_card(fleet, name)), off)
            for name in fleet.names
        ),
    ]
    routes.append(_direct({"prefix": "/v1/models/", "headers": [_READ]}, 404, error_body(_NO_SUCH_MODEL, 404), off))
    alone = len(fleet.addresses) == 1
    if not alone:
        routes.append(_direct({"prefix": STORED}, 404, error_body(_NOT_STORED, 404), off))
    others: Value = {"prefix": "/", "headers": match_none_of((*INFERENCE, *more_paths), stored=alone)}
    routes.append(_direct(others, 404, error_body(_NOT_INFERENCE, 404), off))
    if len(fleet.names) == 1:
        routes += _routes_to({}, 0, silence_s)
    else:
        for number, name in enumerate(fleet.names):
            header: Value = {"name": MODEL, "string_match": {"exact": name}}
            routes += _routes_to({"headers": [header]}, number, silence_s)
        for number, name in enumerate(fleet.names):
            metadata: Value = {
                "filter": MODEL_METADATA,
                "path": [{"key": "model"}],
                "value": {"string_match": {"exact": name}},
            }
            routes += _routes_to({"dynamic_metadata": [metadata]}, number, silence_s)
        unknown = f"the request names no model of this fleet; use one of {list_names(fleet.names)}"
        routes.append(_direct({"prefix": "/"}, 404, error_body(unknown, 404), {}))
    host: Value = {
        "name": "fleet",
        "domains": ["*"],
        "routes": routes,
        "include_request_attempt_count": True,  # the module counts the tries of a request
        "response_headers_to_remove": ["location", "content-location"],  # they name engines
    }
    if access is not None:
        host["typed_per_filter_config"] = key_credentials(access)
        host["request_headers_to_add"] = [_engine_key(access.engine_key)] if access.engine_key else []
    return host


def _engine_key(key: str) -> Value:
    header = {"key": "authorization", "value": f"Bearer {key}"}
    return {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def models_body(fleet: RoutedFleet) -> str:
    """Return the response body of /v1/models."""
    return json.dumps({"object": "list", "data": [_card(fleet, name) for name in fleet.names]})


def _card(fleet: RoutedFleet, name: str) -> Value:
    model = fleet.model_of[name]
    parent = {} if model == name else {"parent": model}
    return {"id": name, "object": "model", "created": 0, "owned_by": "penstock", **parent}


def error_body(message: str, code: int) -> str:
    """Return an OpenAI error body."""
    return json.dumps({"error": {"message": message, "type": "NotFoundError", "param": None, "code": code}})


def _direct(match: Value, status: int, body: str, more: Value) -> Value:
    answer: Value = {"status": status}
    if body:
        answer["body"] = {"inline_string": body}
    kind = {"header": {"key": "content-type", "value": "application/json"}}
    return {
        "match": match,
        "direct_response": answer,
        "response_headers_to_add": [{**kind, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
        **({"typed_per_filter_config": more} if more else {}),
    }


def _routes_to(match: Value, number: int, silence_s: float) -> list[Value]:
    """Return the routes to a model, in order of precedence.

    The routes for completion paths come first. For each path, the route for streams comes before the route for all
    other requests.
    """
    # No timeout: a stream may last arbitrarily long.
    target: Value = {"cluster": cluster_name(number), "timeout": "0s", "hedge_policy": _HEDGE}
    headers = cast("list[Value]", match.get("headers", []))
    completion: Value = {"safe_regex": {"regex": COMPLETIONS}, **match, "headers": [_POST, *headers]}
    other: Value = {"prefix": "/", **match, "headers": headers}
    routes: list[Value] = []
    for matcher, more in ((completion, _OF_COMPLETIONS), (other, {})):
        route = {**target, "retry_policy": {**_RETRY, **more, "per_try_timeout": f"{silence_s:g}s"}}
        streamed = {**matcher, "headers": [_STREAMED, *cast("list[Value]", matcher["headers"])]}
        # Envoy has chosen the other route before the module said that this is a stream, and keeps its idle timeout
        # unless this route has one.
        routes.append({"match": streamed, "route": {**route, "idle_timeout": f"{STREAM_IDLE_S}s"}})
        routes.append({"match": matcher, "route": {**route, "idle_timeout": f"{_WHOLE_IDLE_S}s"}})
    return routes
