"""What fits and meets the SLO is a candidate; what something else beats is not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import deployment, model
from penstock.catalog import load_accelerator
from penstock.fleet import Deployment
from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates.candidate_search import Candidate, Screen, drop_dominated, find_candidates
from penstock.planning.candidates.replica_capacity import (
    Capacity,
    CapacityOf,
    Option,
    RateCurve,
    length_by_length,
    mixed_rate,
)
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.problem import Demand, Offer, Problem, ReplicaKind, Tier
from penstock.planning.spec.plan_types import AcceleratorPlan, Bucket, WorkloadPlan
from penstock.workload.slo import Slo
from small_plans import TWO_PARTS, capacities, plan_of

CHAT = plan_of(TWO_PARTS).workloads[0]
PLACED = {tp: deployment("llama-3.1-8b", "mi300x", tp=tp) for tp in (1, 2, 4, 8)}


def candidate(tp: int, rates: tuple[float, ...], ident: str | None = None) -> Candidate:
    made = tuple(
        Capacity(
            curve=RateCurve.through(Range(value=rate, low=rate, high=rate)),
            tier="x",
            grounds="made up",
            prefill_fraction=None,
        )
        for rate in rates
    )
    return Candidate(
        id=ident or f"tp{tp} {rates}", workload="chat", weights="bf16", deployment=PLACED[tp], capacities=made
    )


def test_a_70b_in_bf16_is_not_placed_on_one_h100_but_in_fp8_it_is() -> None:
    workload = replace(CHAT, model="llama-3.1-70b", weights=("checkpoint", "fp8"))
    h100 = load_accelerator("h100")
    spec = model("llama-3.1-70b")
    found = find_candidates(
        workload, spec, [(h100, AcceleratorPlan(id=h100.id))], length_by_length(capacities({h100.id: 1.0}))
    )
    ids = {entry.id for entry in found.candidates}
    assert any("tp1 fp8" in ident for ident in ids)
    assert not any("tp1 bf16" in ident for ident in ids)
    assert found.considered > len(found.candidates)


def test_a_part_that_cannot_is_left_out_with_the_reason() -> None:
    accelerators = [
        (load_accelerator(name), AcceleratorPlan(id=name)) for name in ("mi300x", "rtx_4090", "a100_80gb_sxm")
    ]
    workload = replace(CHAT, model="deepseek-r1")
    found = find_candidates(workload, model("deepseek-r1"), accelerators, length_by_length(capacities({"mi300x": 1.0})))
    assert {entry.accelerator.id for entry in found.candidates} == {"mi300x"}
    reasons = {entry.what.rsplit(" ", 1)[-1]: entry.why for entry in found.left_out}
    assert "exceed" in reasons["rtx_4090"]
    assert "exceed" in reasons["a100_80gb_sxm"]


def test_several_copies_of_a_small_replica_beat_a_large_one() -> None:
    small, large, quick = candidate(1, (1.0, 0.5)), candidate(2, (1.9, 0.9)), candidate(2, (1.9, 1.2))
    assert drop_dominated([large, small]) == [small]
    assert drop_dominated([quick, small]) == [small, quick]


def test_what_a_screen_finds_unable_is_not_judged_and_only_careful_rates_prune() -> None:
    mi300x = load_accelerator("mi300x")
    asked: list[int] = []
    careful = capacities({"mi300x": 1.0})

    def counting(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        asked.append(1)
        return careful(deployment, bucket, slo)

    spec = model("llama-3.1-8b")
    accelerators = [(mi300x, AcceleratorPlan(id="mi300x"))]
    screened = find_candidates(
        CHAT, spec, accelerators, length_by_length(counting), screen=length_by_length(capacities({"mi300x": 2.0}))
    )
    assert len(screened.candidates) == 1
    assert len(asked) == len(CHAT.shares) * screened.considered
    assert screened.candidates[0].rates[0] == careful(PLACED[1], CHAT.shares[0].bucket, CHAT.slo).requests_per_s.value
    asked.clear()
    assert (
        find_candidates(
            CHAT, spec, accelerators, length_by_length(counting), screen=length_by_length(capacities({}))
        ).candidates
        == ()
    )
    assert asked == []


@pytest.mark.parametrize("accelerator", ["h100", "h200", "mi300x"])
def test_a_checkpoint_is_placed_where_engines_widen_it_and_nobody_converts_to_such_a_format(accelerator: str) -> None:
    """gpt-oss is published in mxfp4 and everybody serves it on Hopper and MI300X."""
    accelerators = [(load_accelerator(accelerator), AcceleratorPlan(id=accelerator, tp=(1, 2)))]
    as_it_is = find_candidates(
        replace(CHAT, weights=("checkpoint",)), model("gpt-oss-120b"), accelerators, length_by_length(_any)
    )
    converted = find_candidates(
        replace(CHAT, weights=("mxfp4",)), model("llama-3.1-70b"), accelerators, length_by_length(_any)
    )
    assert as_it_is.candidates
    assert converted.candidates == ()


def _any(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
    return capacities({deployment.accelerator.id: 1.0})(deployment, bucket, slo)


def test_a_split_that_is_better_only_with_queues_is_kept() -> None:
    """Without queues two small replicas equal a large one; with queues the large one carries more."""

    def queued(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        found = capacities({"mi300x": 1.0})(deployment, bucket, slo)
        return replace(found, curve=found.curve.scaled(deployment.parallelism.tp**0.3))

    accelerators = [(load_accelerator("mi300x"), AcceleratorPlan(id="mi300x", tp=(1, 2, 4)))]
    found = find_candidates(
        CHAT,
        model("llama-3.1-8b"),
        accelerators,
        length_by_length(queued),
        screen=length_by_length(capacities({"mi300x": 4.0})),
    )
    assert [entry.deployment.parallelism.tp for entry in found.candidates] == [1, 2, 4]


def by_engine(rates: dict[str, float]) -> CapacityOf:
    def capacity_of(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        rate = rates[option.measured_engine] * option.deployment.parallelism.devices
        one = Capacity(
            curve=RateCurve.through(Range(value=rate, low=rate, high=rate)),
            tier="x",
            grounds="made up",
            prefill_fraction=None,
            measured_engine=option.measured_engine,
        )
        return (one,) * len(workload.shares)

    return capacity_of


@pytest.mark.parametrize("splits", [(1, 2, 4), (2, 4), (4,)])
def test_the_engine_that_carries_most_is_chosen_whatever_other_splits_are_considered(splits: tuple[int, ...]) -> None:
    accelerators = [(load_accelerator("mi300x"), AcceleratorPlan(id="mi300x", tp=splits))]
    found = find_candidates(
        CHAT,
        model("llama-3.1-8b"),
        accelerators,
        by_engine({"vllm": 1.0, "sglang": 1.2}),
        screen=by_engine({"vllm": 1.4, "sglang": 1.3}),
        engines_of=lambda *_: ("sglang", "vllm"),
    )
    assert {entry.measured_engine for entry in found.candidates} == {"sglang"}
    assert {entry.deployment.engine.name for entry in found.candidates} == {"sglang"}
    assert [entry.deployment.parallelism.tp for entry in found.candidates] == [splits[0]]


@pytest.mark.parametrize(
    ("asked", "chosen"), [((), "sglang"), (("vllm",), "vllm"), (("vllm", "sglang"), "sglang"), (("atom",), None)]
)
def test_only_an_engine_that_is_asked_for_is_chosen_and_a_part_without_it_is_left_out_by_name(
    asked: tuple[str, ...], chosen: str | None
) -> None:
    found = find_candidates(
        replace(CHAT, engines=asked),
        model("llama-3.1-8b"),
        [(load_accelerator("mi300x"), AcceleratorPlan(id="mi300x", tp=(1,)))],
        by_engine({"vllm": 1.0, "sglang": 1.2}),
        engines_of=lambda *_: ("sglang", "vllm"),
    )
    assert [entry.measured_engine for entry in found.candidates] == ([] if chosen is None else [chosen])
    why = [entry.why for entry in found.left_out]
    assert why == (["not measured with atom; measured: sglang, vllm"] if chosen is None else [])


def test_what_a_screen_says_is_behind_a_simulated_rate_is_not_simulated() -> None:
    asked: list[str] = []
    careful = by_engine({"vllm": 1.0, "sglang": 1.2})

    def counting(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        asked.append(option.measured_engine)
        return careful(option, workload)

    accelerators = [(load_accelerator("mi300x"), AcceleratorPlan(id="mi300x", tp=(1,)))]
    screen = by_engine({"vllm": 1.05, "sglang": 1.3})
    find_candidates(
        CHAT, model("llama-3.1-8b"), accelerators, counting, screen=screen, engines_of=lambda *_: ("sglang", "vllm")
    )
    assert asked == ["sglang"]


@pytest.mark.parametrize(("carried", "searched"), [(1.16, ["sglang"]), (1.25, ["sglang", "vllm"])])
def test_one_simulation_at_the_rate_to_beat_decides_whether_the_capacity_is_searched(
    carried: float, searched: list[str]
) -> None:
    asked: list[str] = []
    careful = by_engine({"vllm": carried, "sglang": 1.2})

    def counting(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        asked.append(option.measured_engine)
        return careful(option, workload)

    found = find_candidates(
        CHAT,
        model("llama-3.1-8b"),
        [(load_accelerator("mi300x"), AcceleratorPlan(id="mi300x", tp=(1,)))],
        counting,
        screen=Screen(by_engine({"vllm": 1.25, "sglang": 1.3}), lambda _option, _load, share: share * 1.25 <= carried),
        engines_of=lambda *_: ("sglang", "vllm"),
    )
    assert asked == searched
    assert [entry.measured_engine for entry in found.candidates] == searched[-1:]


def test_a_mix_takes_the_time_of_each_length_and_leaves_out_what_is_not_served() -> None:
    assert mixed_rate((0.5, 0.5), (2.0, 1.0)) == pytest.approx(1 / (0.5 / 2 + 0.5 / 1))
    assert mixed_rate((0.5, 0.5), (2.0, 0.0)) == 2.0
    assert mixed_rate((1.0,), (0.0,)) == 0.0


rates = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (pair[0] / 10, pair[1] / 10))


@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), rates), min_size=1, max_size=5),
    wanted=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_pruning_never_changes_the_cheapest_fleet(
    entries: list[tuple[int, tuple[float, float]]], wanted: tuple[int, int]
) -> None:
    every = [candidate(tp, pair, f"{number} tp{tp}") for number, (tp, pair) in enumerate(entries)]
    pruned = drop_dominated(every)
    costs = [cheapest(_problem(kept, wanted), gap_fraction=0.0) for kept in (every, pruned)]
    assert (costs[0] is None) == (costs[1] is None)
    if costs[0] is not None and costs[1] is not None:
        assert abs(costs[0].cost_usd - costs[1].cost_usd) < 1e-3


def _problem(kept: list[Candidate], wanted: tuple[int, int]) -> Problem:
    return Problem(
        periods=1,
        offers=(
            Offer(
                accelerator="mi300x",
                vendor="amd",
                site="site",
                devices=8,
                node_watts=1.0,
                tiers=(Tier(min_devices=0, node_usd=(1000.0,)),),
            ),
        ),
        replicas=tuple(
            ReplicaKind(
                id=entry.id,
                accelerator="mi300x",
                workload="chat",
                devices=entry.devices,
                requests_per_s={number: rate for number, rate in enumerate(entry.rates) if rate},
            )
            for entry in kept
        ),
        demands=tuple(
            Demand(key=("chat", number), requests_per_s=(rate / 2,), tokens=1) for number, rate in enumerate(wanted)
        ),
    )
