"""A fleet is exported to other routers: real Envoy accepts the endpoints, and figures agree with the simulator's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from load_results import FOLDER
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.calibrate import calibrate
from penstock.api.export import constants_of, export
from penstock.api.simulate import simulate
from penstock.errors import UsageError
from penstock.exports.router_files import FORMATS, NEED_NO_ENDPOINTS
from penstock.fleet.pools import Fleet

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"


def fleet() -> Fleet:
    """Return the example with an address for each replica."""
    chosen, pools = fleet_choice(EXAMPLE), []
    for number, pool in enumerate(chosen.pools):
        ports = range(9000 + 10 * number, 9000 + 10 * number + pool.replicas)
        pools.append(replace(pool, endpoints=tuple(f"10.0.0.{number + 1}:{port}" for port in ports)))
    return replace(chosen, pools=tuple(pools))


def test_envoy_accepts_the_endpoints(tmp_path: Path) -> None:
    pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')
    from penstock.gateway.envoy.envoy_binary import validate  # noqa: PLC0415

    (resource,) = json.loads(export(fleet(), "envoy"))["resources"]
    del resource["@type"]
    cluster = {"name": resource["cluster_name"], "type": "STATIC", "load_assignment": resource}
    path = tmp_path / "envoy.json"
    path.write_text(json.dumps({"static_resources": {"clusters": [cluster]}}))
    validate(path)
    weights = [one["load_balancing_weight"] for one in resource["endpoints"][0]["lb_endpoints"]]
    assert len(weights) == 4
    assert max(weights) == 100


def test_a_replica_keeps_the_slo_a_little_below_its_rate_and_misses_it_well_above() -> None:
    first, second = constants_of(fleet())
    load: dict[str, Any] = {"input_tokens": 1024, "output_tokens": 200, "slo": "ttft=1s,tpot=50ms", "requests": 2000}
    for one, engine in ((first, "vllm"), (second, "sglang")):
        met = [
            simulate("llama-3.1-8b", one.pool.accelerator, engine=engine, rate=share * one.requests_per_s, **load).good
            for share in (0.8, 1.4)
        ]
        assert met == [True, False]


def test_litellm_gets_weights_limits_and_prices() -> None:
    document = yaml.safe_load(export(fleet(), "litellm"))
    constants = {one.pool.name: one for one in constants_of(fleet())}
    assert len(document["model_list"]) == 4
    for entry in document["model_list"]:
        one = constants[entry["model_info"]["id"].partition("/")[0]]
        assert entry["litellm_params"]["rpm"] == int(60 * one.requests_per_s)
        per_hour = entry["model_info"]["output_cost_per_token"] * one.requests_per_s * 3600 * one.output_tokens
        assert per_hour == pytest.approx(one.pool.usd_per_hour)
    providers = {entry["litellm_params"]["model"].partition("/")[0] for entry in document["model_list"]}
    assert providers == {"hosted_vllm", "openai"}


def test_workers_of_sglangs_gateway_cost_what_their_requests_cost() -> None:
    bodies = [json.loads(line) for line in export(fleet(), "sglang-router").splitlines()]
    costs = {body["labels"]["pool"]: body["cost"] for body in bodies}
    first, second = constants_of(fleet())
    assert min(costs.values()) == 1
    assert first.usd_per_request is not None
    assert second.usd_per_request is not None
    ratio = first.usd_per_request / second.usd_per_request
    assert costs[first.pool.name] / costs[second.pool.name] == pytest.approx(ratio, rel=1e-3)


def test_keda_scales_before_the_sustained_rate() -> None:
    objects = list(yaml.safe_load_all(export(fleet(), "keda")))
    for one, made in zip(constants_of(fleet()), objects, strict=True):
        assert made["spec"]["maxReplicaCount"] == one.pool.replicas
        assert float(made["spec"]["triggers"][0]["metadata"]["threshold"]) == pytest.approx(
            0.85 * one.requests_per_s, rel=1e-3
        )


def test_names_of_scaled_objects_are_names_of_kubernetes() -> None:
    """A plan names its pools after accelerators, such as `chat-h200_sxm-tp1`."""
    given, name = fleet(), "Chat-h200_sxm-tp1"
    pools = (replace(given.pools[0], name=name),)
    routes = tuple(replace(one, weights={name: 1.0}) for one in given.routes)
    made = yaml.safe_load(export(replace(given, pools=pools, routes=routes), "keda"))
    assert made["metadata"]["name"] == made["spec"]["scaleTargetRef"]["name"] == "chat-h200-sxm-tp1"
    assert 'pool="Chat-h200_sxm-tp1"' in made["spec"]["triggers"][0]["metadata"]["query"]


@pytest.mark.parametrize("to", sorted(set(FORMATS) - NEED_NO_ENDPOINTS))
def test_a_pool_without_endpoints_is_refused(to: str) -> None:
    with pytest.raises(UsageError, match="pool 'h100' has no endpoints"):
        export(EXAMPLE, to)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="write one of envoy, litellm, sglang-router, keda"):
        export(EXAMPLE, "nginx")


@pytest.mark.parametrize("to", ["aibrix", "llm-d", "sglang-router"])
def test_a_pool_without_a_price_is_not_taken_as_free(to: str) -> None:
    first, *others = fleet().pools
    given = replace(fleet(), pools=(replace(first, usd_per_hour=None), *others))
    with pytest.raises(UsageError, match=r"h100.* no price"):
        export(given, to)


def test_a_calibration_of_another_setup_is_refused(shared: Path, tmp_path: Path) -> None:
    text = calibrate([shared / FOLDER / "vllm-bench-0.33.0/c4.json"], "h100:2", "vllm", "fp8", "fp8").text()
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"own.yaml does not correct a setup of this question"):
        export(fleet(), "envoy", calibration=str(tmp_path / "own.yaml"))
