"""Where an engine's defaults do not fit, the nearest settings that do are taken; what was asked for is kept."""

from dataclasses import replace
from typing import Any

import penstock
from examples import deployment
from penstock.model.model_spec import model_as_measured
from penstock.performance.memory.budget import fit
from penstock.performance.memory.engine_settings_that_fit import engine_flags, with_room


def test_a_larger_share_of_memory_comes_before_smaller_steps() -> None:
    """Attack: DeepSeek-R1 in FP8 on four B200 "does not fit"; InferenceX runs it with --mem-fraction-static 0.95."""
    placed = deployment("deepseek-r1", "b200", tp=4, engine="sglang")
    assert not fit(placed, 8294).fits
    tuned = with_room(placed, 8294)
    assert fit(tuned, 8294).certain
    assert 0.88 < tuned.engine.memory_fraction <= 0.95
    assert engine_flags(tuned) == (f"--mem-fraction-static {tuned.engine.memory_fraction:g}",)


def test_smaller_steps_make_room_where_no_share_does() -> None:
    """Attack: V4 on eight H200 held 360 tokens; InferenceX runs it at 0.95 with steps of 512."""
    placed = deployment("deepseek-v4-pro", "h200", dp=8, ep=True)
    largest = replace(placed, engine=replace(placed.engine, memory_fraction=0.95))
    assert not fit(placed, 8294).fits
    assert not fit(largest, 8294).fits
    tuned = with_room(placed, 8294)
    assert fit(tuned, 8294).fits
    assert 512 <= tuned.engine.max_batched_tokens < placed.engine.max_batched_tokens


def test_more_requests_take_a_larger_share() -> None:
    placed = deployment("deepseek-r1", "b200", tp=4, engine="sglang")
    one, many = (with_room(placed, 8294, requests=requests) for requests in (1, 8))
    assert one.engine.memory_fraction < many.engine.memory_fraction
    held = fit(many, 8294).capacity
    assert held is not None
    assert held.concurrent_requests is not None
    assert held.concurrent_requests >= 8


def test_what_fits_and_what_nothing_helps_are_left_alone() -> None:
    for name, accelerator in (("llama-3.1-8b", "h100"), ("llama-3.1-70b", "h100")):
        placed = deployment(name, accelerator)
        assert with_room(placed, 8192) is placed
        assert engine_flags(placed) == ()


def test_settings_are_those_asked_for() -> None:
    asked = {"precision": "fp8", "engine": "sglang", "context": 8294}
    usual, fixed, larger = (
        penstock.fit("deepseek-r1", "b200:4", memory_fraction=share, **asked)  # type: ignore[arg-type]
        for share in (None, 0.86, 0.91)
    )
    assert not usual.good
    assert usual.reports[0].remedies[0].change == "--memory-fraction 0.90"
    assert not fixed.good
    assert fixed.reports[0].fit.deployment.engine.memory_fraction == 0.86
    assert larger.good
    assert larger.reports[0].flags == ("--mem-fraction-static 0.91",)


def test_predict_answers_with_the_settings_that_hold_the_load() -> None:
    """Attack: the one measured cell of 320 that got no answer."""
    answer = penstock.predict(
        *("deepseek-r1", "b200:4"),
        precision="fp8",
        engine="sglang",
        input_tokens=7373,
        output_tokens=922,
        concurrency=8,
    )
    assert answer.good
    document: dict[str, Any] = answer.to_dict()
    assert document["deployments"][0]["flags"][0].startswith("--mem-fraction-static 0.9")


def test_fp8_of_glm_4_7_has_a_scale_for_each_channel() -> None:
    """Attack: tp 8 was refused for cutting a block of 128, and ATOM's nightlies run it."""
    placed = deployment("glm-4.7", "mi355x", tp=8)
    assert fit(replace(placed, model=model_as_measured(placed.model, "fp8")), 8192).fits
