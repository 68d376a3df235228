"""What is predicted with: the shipped rows are the measurements, and a deployment is told what was measured of it."""

from dataclasses import replace
from datetime import date
from typing import get_args

import numpy as np
import pytest

from examples import deployment
from penstock.catalog import load_accelerator, load_efficiencies, load_evidence, load_measurements
from penstock.catalog.measurement import Measurement, Scenario
from penstock.performance.calibration.efficiencies import from_document, to_arrays, to_document
from penstock.performance.calibration.first_token_regression import FitTerms, Row, Software, calibrate
from penstock.performance.calibration.first_token_waits import FIRST, fit_first_tokens
from penstock.performance.calibration.held_out import Dated
from penstock.performance.calibration.measured_runs import (
    as_columns,
    described_runs,
    medians_of_runs,
    runs,
    setup_of,
    usable_runs,
)
from penstock.performance.prediction.choose_engine import predict_on
from penstock.performance.prediction.predict_deployment import Prediction
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import (
    model_of,
    shipped_efficiencies,
    shipped_first_tokens,
    shipped_runs,
)
from penstock.performance.similarity.cases import DrivenEngine
from penstock.performance.step.step_cost import step_cost
from penstock.performance.step.step_work import ReplicaWork, rooflines_s

SHIPPED = shipped_efficiencies()
OLD, NEW = Software("online", "0.5.9", date(2026, 1, 1)), Software("online", "0.5.10", date(2026, 2, 1))
TERMS = FitTerms(lower_bounds=np.array([0.0, 1.0]), prior=np.array([0.02, 1.3]), floor=np.array([0.01, 0.2]))


def test_the_shipped_evidence_is_what_the_shipped_measurements_give() -> None:
    fresh = as_columns(shipped_runs(), medians_of_runs(load_measurements())).to_arrays()
    shipped = load_evidence()
    assert fresh.keys() | {"solved"} == shipped.keys()
    for name, values in fresh.items():
        if values.dtype.kind == "f":
            assert shipped[name] == pytest.approx(values, rel=1e-5, nan_ok=True), name
        else:
            assert (shipped[name] == values).all(), name


def test_first_tokens_are_fitted_to_the_shipped_rows() -> None:
    fresh = fit_first_tokens(shipped_first_tokens(), Dated(SHIPPED.evidence))
    assert SHIPPED.first.by_path.keys() == fresh.by_path.keys()
    for path, found in fresh.by_path.items():
        assert SHIPPED.first.by_path[path].slowdowns == pytest.approx(found.slowdowns, rel=0.02, abs=1e-4)


def test_document_and_arrays_round_trip() -> None:
    again = from_document(load_efficiencies(), load_evidence())
    assert to_document(again) == load_efficiencies()
    assert to_arrays(again).keys() == load_evidence().keys()
    assert set(load_efficiencies()["first"][0]["beyond"]) == set(FIRST)


def test_drafts_disaggregation_and_twins_teach_nothing() -> None:
    def one(**what: bool) -> Measurement:
        return next(row for row in load_measurements() if what.items() <= _kinds(row).items())

    plain = one(drafted=False, disaggregated=False, twin=False)
    others = [one(drafted=True, disaggregated=False), one(disaggregated=True), one(twin=True, drafted=False)]
    assert [run.row for run in runs([plain, *others], model_of, load_accelerator)] == [plain]


def _kinds(row: Measurement) -> dict[str, bool]:
    return {"drafted": bool(row.drafted), "disaggregated": row.scenario == "disaggregated", "twin": bool(row.twin)}


def test_a_nightly_cell_counts_once_a_month() -> None:
    nightly = [row for row in load_measurements() if row.source == "rocm-atom-nightly" and row.plain]
    kept = usable_runs(nightly)
    assert len(kept) < len(nightly) / 3
    cells = [
        (*setup_of(row), row.concurrency, row.input_tokens, row.output_tokens, f"{row.date:%Y-%m}") for row in kept
    ]
    assert len(set(cells)) == len(cells)


def test_offline_rows_speak_only_for_parts_nobody_measured_serving() -> None:
    saturated = {run.row.accelerator for run in shipped_runs() if run.row.scenario == "saturated"}
    assert "a100_80gb_sxm" in saturated
    assert not saturated & {"h100_sxm", "h200_sxm", "b200_sxm", "mi300x", "mi355x"}


def test_a_part_known_only_offline_is_not_calibrated() -> None:
    stack = stack_of(ReplicaWork(deployment("llama-3.1-70b", "a100", tp=8)), "trtllm", SHIPPED)
    assert stack.novelty == "accelerator"
    assert stack.tier == "transferred"
    assert SHIPPED.engines("a100_80gb_sxm") == ()


def test_a_row_faster_than_its_own_roofline_is_not_evidence() -> None:
    """Attack: gb200's only serving row, m05555, took 0.92 of its roofline and made gb200 faster than gb300."""
    shares = rooflines_s(SHIPPED.evidence.cases.roofline) / SHIPPED.evidence.measured.seconds
    assert shares.max() <= 1
    row = next(row for row in load_measurements("gb200") if row.id == "m05555")
    (described,) = described_runs([row], model_of, load_accelerator)
    assert described.faster_than_roofline
    assert list(runs([row], model_of, load_accelerator)) == []


@pytest.mark.parametrize(
    ("name", "accelerator", "tp", "engine", "novelty", "tier"),
    [
        ("deepseek-r1", "mi300x", 8, "sglang", "shape", "calibrated"),
        ("deepseek-r1", "mi300x", 4, "sglang", "configuration", "calibrated"),
        ("qwen3-8b", "mi300x", 1, "sglang", "model", "transferred"),
        ("deepseek-r1", "mi300x", 8, "trtllm", "accelerator", "transferred"),
    ],
)
def test_it_says_what_was_never_measured(
    name: str, accelerator: str, tp: int, engine: str, novelty: str, tier: str
) -> None:
    stack = stack_of(ReplicaWork(deployment(name, accelerator, tp=tp)), engine, SHIPPED)
    assert (stack.novelty, stack.tier) == (novelty, tier)
    assert stack.spread[0] < 0 < stack.spread[1]


def test_the_newest_dated_release_of_the_setup_is_the_one_named() -> None:
    stack = stack_of(ReplicaWork(deployment("deepseek-r1", "mi300x", tp=8)), "sglang", SHIPPED)
    rows = [run.row for run in shipped_runs() if run.row.model.startswith("deepseek-r1") and run.row.tp == 8
            and run.row.accelerator == "mi300x" and run.row.engine == "sglang" and run.row.dated == "day"]  # fmt: skip
    assert stack.software is not None
    assert stack.software.date == max(row.date for row in rows)


def test_deepseek_r1_on_mi300x_is_where_it_was_measured() -> None:
    """76.4 ms on the newest day, whose small loads are a third faster than in February; 84 to 85 then."""
    placed = deployment("deepseek-r1", "mi300x", tp=8)
    found = predict_on(
        placed.model,
        placed.accelerator,
        placed.parallelism,
        cache_dtype=None,
        measured_engine="best",
        load=(8192, 1024, 64),
        efficiencies=SHIPPED,
    )
    assert found.tier == "measured"
    assert found.tpot_s.value == pytest.approx(0.0764, rel=0.08)
    assert found.tpot_s.low < 0.0764 < found.tpot_s.high


@pytest.mark.parametrize(
    ("name", "accelerator", "tp"),
    [("qwen3-235b-a22b-fp8", "h200", 8), ("qwen3-235b-a22b-fp8", "h200", 4), ("deepseek-r1", "mi300x", 8)],
)
def test_the_best_engine_is_one_that_starts_and_is_predicted_as_when_it_is_asked_for(
    name: str, accelerator: str, tp: int
) -> None:
    """Attack: SGLang was the best engine of a split that `fit --engine sglang` refuses, by vLLM's rules."""
    placed = deployment(name, accelerator, tp=tp)

    def found(engine: str) -> Prediction:
        return predict_on(
            placed.model,
            placed.accelerator,
            placed.parallelism,
            cache_dtype=None,
            measured_engine=engine,
            load=(1024, 1024, 64),
            efficiencies=SHIPPED,
        )

    best = found("best")
    asked = {engine: found(engine) for engine in SHIPPED.engines(placed.accelerator.id)}
    assert best.memory.fits
    same = asked[best.measured_engine]
    assert (best.deployment, best.memory) == (same.deployment, same.memory)
    assert (best.tpot_s, best.ttft_s, best.output_tokens_per_s) == (same.tpot_s, same.ttft_s, same.output_tokens_per_s)
    start = [engine for engine in asked if asked[engine].memory.fits]
    served = [engine for engine in SHIPPED.engines(placed.accelerator.id, placed.model) if engine in start]
    measured = [engine for engine in served if asked[engine].tier in {"measured", "interpolated"}]
    assert best.tpot_s.high == min(asked[engine].tpot_s.high for engine in measured or served or start)


def test_fine_tunes_of_one_shape_are_one_setup() -> None:
    one, other = (
        stack_of(ReplicaWork(deployment(name, "mi300x", tp=8)), "sglang", SHIPPED)
        for name in ("deepseek-r1", "deepseek-v3.1")
    )
    assert one.seen == other.seen


def rows(*, software: float = 1.0, noise: float = 0.0, count: int = 200) -> list[Row]:
    random = np.random.default_rng(7)
    made = []
    for number in range(count):
        light = np.array([1.0, random.uniform(0.05, 2.0)])
        new = number % 2 == 0
        seconds = float(light @ np.array([0.05, 1.6])) * (software if new else 1.0)
        made.append(
            Row(
                roofline=light,
                seconds=seconds * float(np.exp(noise * random.normal())),
                path=("CDNA 3", "mi300x", "sglang"),
                family="one",
                software=NEW if new else OLD,
                configuration="same",
            )
        )
    return made


def test_known_terms_are_recovered() -> None:
    calibration = calibrate(rows(noise=0.02), TERMS)
    errors = [calibration.seconds(row) / row.seconds - 1 for row in rows()]
    assert np.median(np.abs(errors)) < 0.03


def test_a_faster_release_is_a_factor() -> None:
    _, fitted = calibrate(rows(software=0.7), TERMS).nearest(("CDNA 3", "mi300x", "sglang"))
    gap = fitted.factors.software[NEW] - fitted.factors.software[OLD]
    assert gap == pytest.approx(np.log(0.7), abs=0.05)


def test_terms_keep_their_bounds_and_strangers_borrow_from_their_architecture() -> None:
    calibration = calibrate([replace(row, seconds=row.seconds / 9) for row in rows()], TERMS)
    assert all((fitted.slowdowns >= TERMS.lower_bounds - 1e-12).all() for fitted in calibration.by_path.values())
    assert calibration.nearest(("CDNA 3", "mi325x", "sglang"))[0] == ("CDNA 3",)
    assert calibration.nearest(("Hopper", "h100", "vllm"))[0] == ()


def test_a_rank_of_a_dense_model_runs_as_the_replica_it_would_be_alone() -> None:
    alone = deployment("llama-3.1-70b", "h100_sxm", tp=2)
    ranks = replace(alone, parallelism=replace(alone.parallelism, dp=2))
    one, two = (stack_of(ReplicaWork(told), "vllm", SHIPPED) for told in (alone, ranks))
    assert two.slowdowns.tolist() == one.slowdowns.tolist()
    assert (two.request_s, two.first_ratio, two.novelty) == (one.request_s, one.first_ratio, one.novelty)
    whole = step_cost(ReplicaWork(alone), one.slowdowns)
    shared = step_cost(ReplicaWork(ranks), two.slowdowns)
    assert shared.step_s == whole.step_s
    assert shared.of_rank.decode_s == pytest.approx(whole.decode_s, rel=1e-12)
    assert shared.of_rank.prefill_token_s == pytest.approx(whole.prefill_token_s, rel=1e-12)


def test_an_engine_and_how_it_was_driven_are_two_fields() -> None:
    """An engine whose own name has a space still serves; one that ran a static batch does not."""
    driven = {DrivenEngine(name, scenario) for name in ("vllm", "my engine") for scenario in get_args(Scenario)}
    assert {engine.serving for engine in driven if engine.scenario == "online"} == {True}
    assert not any(engine.serving for engine in driven if engine.scenario != "online")
    assert {DrivenEngine.parse(engine.word) for engine in driven} == driven
