"""Routes: idle timeouts, retries, and the paths that reach the engines."""

import re
from typing import Any

import pytest

from gateway_fakes import fleet
from penstock.errors import UsageError
from penstock.gateway.envoy.inference_paths import validate_paths
from penstock.gateway.envoy.routes import virtual_host
from penstock.gateway.state.headers import STREAMED


def routes_to_models() -> list[Any]:
    found: Any = virtual_host(fleet(), protocol="ext_proc")["routes"]
    return [route for route in found if "route" in route]


def idle_s(*, streamed: bool) -> int:
    """How long the first route that takes such a request lets it be silent."""
    for route in routes_to_models():
        wanted = [item["name"] for item in route["match"]["headers"]]
        if streamed or STREAMED not in wanted:
            return int(route["route"]["idle_timeout"].rstrip("s"))
    raise AssertionError("no route takes it")


def test_unstreamed_responses_have_a_long_idle_timeout() -> None:
    assert idle_s(streamed=False) > 3600


def test_streams_have_an_idle_timeout_of_fifteen_minutes() -> None:
    # Without a value of its own, a stream would keep that of the route which Envoy chose before the module answered.
    assert idle_s(streamed=True) == 15 * 60


def test_silent_tries_are_hedged_and_500_is_retried() -> None:
    for route in routes_to_models():
        assert route["route"]["hedge_policy"] == {"hedge_on_per_try_timeout": True}
        assert 500 in route["route"]["retry_policy"]["retriable_status_codes"]


def test_the_module_names_the_silence_only_where_it_is_longer_than_that_of_the_routes() -> None:
    found: Any = virtual_host(fleet(), protocol="module", silence_s=10.0)["routes"]
    assert {route["route"]["retry_policy"]["per_try_timeout"] for route in found if "route" in route} == {"10s"}
    assert {route["route"]["retry_policy"]["per_try_timeout"] for route in routes_to_models()} == {"120s"}


def test_a_request_is_tried_four_times_unless_a_picker_says_otherwise() -> None:
    assert {route["route"]["retry_policy"]["num_retries"] for route in routes_to_models()} == {3}


def test_404_is_retried_for_completions_only() -> None:
    for route in routes_to_models():
        retried = 404 in route["route"]["retry_policy"]["retriable_status_codes"]
        assert retried == (not takes(route, "/v1/embeddings"))


def takes(route: Any, path: str) -> bool:  # noqa: ANN401 - JSON
    match = route["match"]
    if "safe_regex" in match:
        return re.fullmatch(match["safe_regex"]["regex"], path) is not None
    wanted = [item for item in match.get("headers", []) if item["name"] == ":path"]
    others = [item["string_match"] for item in wanted if item["invert_match"]]
    start = match.get("prefix", match.get("path"))
    named = path == start if "path" in match else path.startswith(start)
    return named and not any(path == one.get("exact") or path.startswith(one.get("prefix", "no")) for one in others)


def reaches_engines(path: str, count: int = 4, more: tuple[str, ...] = ()) -> bool:
    """Whether the first route that takes a path leads to an endpoint; headers decide to which model only."""
    routes: Any = virtual_host(fleet(count), protocol="ext_proc", more_paths=more)["routes"]
    return "route" in next(route for route in routes if takes(route, path))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/score",
        "/v2/rerank",
        "/tokenize",
        "/pooling",
        "/score?x=1",
    ],
)
def test_inference_reaches_the_engines(path: str) -> None:
    assert reaches_engines(path)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/files", "/v1/loads", "/metrics", "/sleep", "/v1/"),
        *("/v1/chat/completions/x", "/v1/chat/completionsx", "/xtokenize", "/tokenize/", "/v1/models", "/v1/modelsx"),
    ],
)
def test_no_other_path_reaches_the_engines(path: str) -> None:
    assert not reaches_engines(path)


def test_an_operator_adds_paths() -> None:
    assert reaches_engines("/v1/files", more=("/v1/files",))
    assert not reaches_engines("/v1/filesx", more=("/v1/files",))
    assert validate_paths(["/v1/files", "/v1/embeddings", "/v1/files"]) == ("/v1/files",)
    for wrong in ("v1/files", "/v1/.*", "/v1/files?x", ""):
        with pytest.raises(UsageError):
            validate_paths([wrong])


def test_stored_responses_are_forwarded_to_a_single_endpoint_only() -> None:
    assert reaches_engines("/v1/responses/resp_1", count=1)
    assert reaches_engines("/v1/responses/resp_1/cancel", count=1)
    assert not reaches_engines("/v1/responses/resp_1")
