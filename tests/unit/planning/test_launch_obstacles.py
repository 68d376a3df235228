"""A plan chooses only deployments whose launch preflight passes, and its fleet file runs with the planned settings."""

from dataclasses import replace
from functools import cache

import pytest

from examples import deployment, model
from penstock.api.arguments.fleet_argument import deployed_pool
from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet.serving_engines import ENGINES, ServingEngine
from penstock.model.model_spec import model_as_measured
from penstock.planning.candidates.candidate_search import Choice, find_candidates
from penstock.planning.candidates.launch_obstacles import LaunchCheck
from penstock.planning.candidates.option_pools import option_pools
from penstock.planning.candidates.replica_capacity import Option, length_by_length
from penstock.planning.spec.plan_types import AcceleratorPlan
from penstock.preflight import Subject, load_knowledge
from penstock.preflight.facts.subject import subject_of
from small_plans import TWO_PARTS, capacities, plan_of

CHAT = plan_of(TWO_PARTS).workloads[0]


@cache
def subject(name: str) -> Subject:
    return subject_of(open_checkpoint(name), name)


def option(engine: ServingEngine, on: str, *, name: str = "deepseek-r1", tp: int = 8, dp: int = 1) -> Option:
    placed = deployment(name, on, tp=tp, dp=dp, ep=dp > 1, engine=engine)
    weights = next(iter(placed.model.formats))
    return Option(id=f"tp{tp} dp{dp}", weights=weights, deployment=placed, measured_engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fleet_file_says_the_settings_that_the_plan_computed_with(engine: ServingEngine) -> None:
    chosen = option(engine, "b200" if engine == "trtllm" else "mi355x")
    (pool,) = option_pools(chosen, name="r1", model="deepseek-r1", site="here", replicas=3)
    assert replace(deployed_pool(pool), cache_dtype=None) == replace(chosen.deployment, cache_dtype=None)


def test_a_launch_that_preflight_cannot_print_for_several_machines_is_an_obstacle() -> None:
    check = LaunchCheck(subject, load_knowledge())
    assert check.obstacle(option("trtllm", "h200", tp=1, dp=8), "deepseek-r1") is None
    why = check.obstacle(option("trtllm", "h200", tp=1, dp=16), "deepseek-r1")
    assert why is not None
    assert why.startswith("preflight does not pass trtllm 1.3.0rc18: 16 devices are 2 machines")
    assert check.obstacle(option("vllm", "h200", tp=1, dp=16), "deepseek-r1") is None


def in_format(name: str, weights: str, engine: ServingEngine, on: str, tp: int) -> Option:
    placed = deployment(name, on, tp=tp, engine=engine)
    converted = replace(placed, model=model_as_measured(placed.model, weights))
    return Option(id=f"{name} {weights} {engine}", weights=weights, deployment=converted, measured_engine=engine)


def test_nothing_undetermined_and_unmeasured_is_planned() -> None:
    """AMD's MXFP4 checkpoint of R1 was ordered for TensorRT-LLM on B200, for $3.1M."""
    check = LaunchCheck(subject, load_knowledge())
    why = check.obstacle(in_format("deepseek-r1", "mxfp4", "trtllm", "b200", 8), "deepseek-r1")
    assert why is not None
    assert "preflight cannot tell whether mxfp4 weights with trtllm on b200_sxm start" in why
    assert check.obstacle(in_format("deepseek-r1", "nvfp4", "trtllm", "b200", 8), "deepseek-r1") is None
    unruled, ruled = (option(engine, "h100", name="qwen3-32b", tp=2) for engine in ("trtllm", "vllm"))
    assert check.obstacle(unruled, "qwen3-32b") is not None
    assert check.is_undetermined(unruled, "qwen3-32b")
    assert check.obstacle(ruled, "qwen3-32b") is None
    published = LaunchCheck(subject, load_knowledge(), lambda option, _: option is unruled)
    assert published.obstacle(unruled, "qwen3-32b") is None
    assert published.is_undetermined(unruled, "qwen3-32b")


def test_weights_that_nobody_publishes_and_the_engine_does_not_make_are_an_obstacle() -> None:
    """The launch named YOUR-FP8-CHECKPOINT, and the plan called it launchable."""
    check = LaunchCheck(subject, load_knowledge())

    def fp8(name: str, engine: ServingEngine) -> Option:
        placed = deployment(name, "h200", tp=1, engine=engine)
        converted = replace(placed, model=model_as_measured(placed.model, "fp8"))
        return Option(id=f"{name} {engine}", weights="fp8", deployment=converted, measured_engine=engine)

    assert check.obstacle(fp8("qwen2.5-32b", "vllm"), "qwen2.5-32b") is None
    assert check.is_undetermined(fp8("qwen3-32b", "trtllm"), "qwen3-32b")
    assert check.obstacle(fp8("qwen2.5-32b", "trtllm"), "qwen2.5-32b") == (
        "the catalog has no fp8 checkpoint of qwen2.5-32b, and trtllm makes none at load"
    )


def test_a_format_that_is_not_planned_is_left_out_with_its_reason() -> None:
    """Weights [fp8, mxfp4, nvfp4] kept FP8 only, and `left_out` was empty."""
    on = [(load_accelerator(name), AcceleratorPlan(id=name, tp=(1,))) for name in ("h200", "mi355x")]
    found = find_candidates(
        replace(CHAT, weights=("fp8", "mxfp4")),
        model("llama-3.1-8b"),
        on,
        length_by_length(capacities({"h200_sxm": 10.0, "mi355x": 10.0})),
        engines_of=lambda *_: ("vllm",),
        obstacle_of=lambda chosen, _: None if chosen.weights == "fp8" else "no such checkpoint",
    )
    assert {entry.weights for entry in found.candidates} == {"fp8"}
    assert {entry.what: entry.why for entry in found.left_out} == {
        "chat in mxfp4 on h200_sxm": "h200_sxm has no datapath for mxfp4 weights",
        "chat in mxfp4 on mi355x": "no such checkpoint",
    }


def found_with(obstacle: str | None, *, asked: tuple[str, ...] = ()) -> Choice:
    """Return what is found if preflight passes SGLang, and ATOM only without an obstacle."""
    mi300x = load_accelerator("mi300x")
    return find_candidates(
        replace(CHAT, engines=asked),
        model("llama-3.1-8b"),
        [(mi300x, AcceleratorPlan(id="mi300x", tp=(1,)))],
        length_by_length(capacities({"mi300x": 10.0})),
        engines_of=lambda *_: ("atom", "sglang"),
        obstacle_of=lambda chosen, _: obstacle if chosen.measured_engine == "atom" else None,
    )


def test_an_option_whose_launch_does_not_pass_is_no_candidate_unless_its_engine_is_asked_for() -> None:
    assert not found_with(None).not_launched
    blocked = found_with("no image")
    assert len(blocked.candidates) == 1
    assert not blocked.left_out
    asked = found_with("no image", asked=("atom",))
    assert len(asked.candidates) == 1
    assert not asked.not_launched


def test_an_accelerator_without_any_launch_is_left_out_with_the_reason() -> None:
    mi300x = load_accelerator("mi300x")
    found = find_candidates(
        CHAT,
        model("llama-3.1-8b"),
        [(mi300x, AcceleratorPlan(id="mi300x", tp=(1,)))],
        length_by_length(capacities({"mi300x": 10.0})),
        obstacle_of=lambda *_: "no image",
    )
    assert not found.candidates
    assert [entry.why for entry in found.left_out] == ["no image"]
    assert [entry.why for entry in found.not_launched] == ["no image"]
