"""Which cluster is a request for? By the model a picker read, by the body where no picker answered."""

import json
from typing import Final, cast

from penstock.gateway.envoy.access import credentials
from penstock.gateway.envoy.clusters import Value, cluster_name
from penstock.gateway.envoy.filters import MODEL_METADATA
from penstock.gateway.state.access import Access
from penstock.gateway.state.fleet import RoutedFleet, listed
from penstock.gateway.state.headers import MODEL, TRY_TIMEOUT

_RETRY: Final[Value] = {
    # Nothing has reached the client in any of these cases, and asking a model twice does no harm.
    "retry_on": "connect-failure,refused-stream,reset,reset-before-request,gateway-error",
    "num_retries": 3,  # four tries with the first
    # Where no picker says how long an endpoint may be silent.
    "per_try_timeout": "120s",
    "retry_host_predicate": [
        {
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
            },
        }
    ],
    "host_selection_retry_max_attempts": 5,
    "retry_back_off": {"base_interval": "0.01s", "max_interval": "0.1s"},
}
_RETRY_MODEL: Final[Value] = {
    **_RETRY,
    "retry_on": f"{_RETRY['retry_on']},retriable-status-codes",
    "retriable_status_codes": [404],
}
"""Of completions, whose only 404 is an engine's that does not know the model; a path nobody has is not tried again."""
STREAM_IDLE_S: Final = 900
"""A stream that has begun and then stalls is given up after so long without a byte."""
_TRIES: Final = 4
_LONGEST_TRY_S: Final = 3600
_LONG_TRY: Final[Value] = {
    "name": TRY_TIMEOUT,
    "range_match": {"start": 1000 * STREAM_IDLE_S // _TRIES, "end": 1000 * _LONGEST_TRY_S + 1},
}
"""Answers that are not streamed are silence until their last token: a picker says how long each try may take."""
COMPLETIONS: Final = "/v1/(chat/)?completions"
_COMPLETIONS: Final[Value] = {"safe_regex": {"regex": COMPLETIONS}}
_NO_PICK: Final[Value] = {
    "penstock.pick": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute",
        "disabled": True,
    }
}
_NO_PICK_GRPC: Final[Value] = {
    "penstock.pick": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "disabled": True,
    }
}


def virtual_host(fleet: RoutedFleet, *, door: str | None, access: Access | None = None) -> Value:
    """All routes, first match first; what Envoy answers itself is not asked about at the door."""
    off: Value = {} if door is None else _NO_PICK if door == "ext_authz" else _NO_PICK_GRPC
    routes: list[Value] = [
        _direct({"path": "/v1/models", "headers": [_is("GET")]}, 200, models_body(fleet), off),
    ]
    if len(fleet.names) == 1:
        routes += _to({}, 0)
    else:
        for number, name in enumerate(fleet.names):
            named: Value = {"name": MODEL, "string_match": {"exact": name}}
            routes += _to({"headers": [named]}, number)
        for number, name in enumerate(fleet.names):
            read: Value = {
                "filter": MODEL_METADATA,
                "path": [{"key": "model"}],
                "value": {"string_match": {"exact": name}},
            }
            routes += _to({"dynamic_metadata": [read]}, number)
        unknown = f"no model of this fleet was asked for; write one of {listed(fleet.names)}"
        routes.append(_direct({"prefix": "/v1/"}, 404, error_body(unknown, 404), {}))
    routes.append(_direct({"prefix": "/"}, 404, error_body("Not Found", 404), off))
    host: Value = {"name": "fleet", "domains": ["*"], "routes": routes}
    if access is not None:
        host["typed_per_filter_config"] = credentials(access)
        host["request_headers_to_add"] = [_engine_key(access.engine_key)] if access.engine_key else []
    return host


def _engine_key(key: str) -> Value:
    said = {"key": "authorization", "value": f"Bearer {key}"}
    return {"header": said, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def models_body(fleet: RoutedFleet) -> str:
    """What /v1/models answers."""
    cards = [
        {"id": name, "object": "model", "created": 0, "owned_by": "penstock", **_parent(fleet, name)}
        for name in fleet.names
    ]
    return json.dumps({"object": "list", "data": cards})


def _parent(fleet: RoutedFleet, name: str) -> Value:
    model = fleet.model_of[name]
    return {} if model == name else {"parent": model}


def error_body(message: str, code: int) -> str:
    """Write an error as OpenAI's clients read it."""
    return json.dumps({"error": {"message": message, "type": "NotFoundError", "param": None, "code": code}})


def _is(method: str) -> Value:
    return {"name": ":method", "string_match": {"exact": method}}


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


def _to(match: Value, number: int) -> list[Value]:
    """Route to a model: completions, those that may take long first, then all else."""
    # A stream lasts as long as it lasts.
    there: Value = {"cluster": cluster_name(number), "timeout": "0s"}
    headers = [_is("POST"), *cast("list[Value]", match.get("headers", []))]
    model = {**there, "retry_policy": _RETRY_MODEL}
    long = {**model, "idle_timeout": f"{_TRIES * _LONGEST_TRY_S + 60}s"}
    return [
        {"match": {**_COMPLETIONS, **match, "headers": [_LONG_TRY, *headers]}, "route": long},
        {"match": {**_COMPLETIONS, **match, "headers": headers}, "route": model},
        {"match": {"prefix": "/v1/", **match}, "route": {**there, "retry_policy": _RETRY}},
    ]
