"""A plan may choose units of prefill and decode replicas, never pays for them, and says how they are run."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from examples import deployment, model
from penstock.catalog import load_accelerator, load_prices
from penstock.checkpoint import open_checkpoint
from penstock.fleet.disaggregated_replica import NETWORK_BYTES_PER_S, Disaggregated
from penstock.fleet.engines import EngineName
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.model import ModelSpec
from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.acceptance_file import read_acceptance, write_acceptance
from penstock.planning.acceptance_tests import Acceptance, margins_of
from penstock.planning.candidates.deployment_options import WorkloadOnAccelerator
from penstock.planning.candidates.replica_capacity import Capacity, Option, RateCurve
from penstock.planning.make_plan import make_plan
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.plan_sources import Sources
from penstock.planning.planned_fleet import planned_fleet
from penstock.planning.pool_launches import PoolLaunch, pool_launches
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.verification.serving_fleet import Check, ServingFleet, VerifyOf
from penstock.preflight import load_knowledge
from penstock.preflight.facts.subject import subject_of
from penstock.report.plan.terminal import render_plan
from small_plans import TWO_PARTS, plan_of

WHOLE = f"{TWO_PARTS}draws: 200\nconstraints: {{confidence: 50%}}\n"
PLAN = WHOLE.replace("requests_per_s: 40", "requests_per_s: 40\n    disaggregated: true")


def unit(accelerator: str, engine: EngineName = "sglang") -> Option:
    """One replica that prefills for three that decode: half a node."""
    replica = deployment("llama-3.1-8b", accelerator, engine=engine)
    apart = Disaggregated(
        prefill=replica,
        prefill_replicas=1,
        decode=replica,
        decode_replicas=3,
        kv_bytes_per_s=NETWORK_BYTES_PER_S,
    )
    name = f"chat {replica.accelerator.id} 1 prefill tp1 to 3 decode tp1 bf16"
    return Option(id=name, weights="bf16", deployment=replica, measured_engine=engine, disaggregated=apart)


def planned(
    factor: float, *, text: str = PLAN, engine: EngineName = "sglang", verify_of: VerifyOf | None = None
) -> PlanResult:
    """Plan with units of an H200 that carry so many times what as many devices carry otherwise."""
    plan = plan_of(text)

    def carried(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        devices = (
            option.deployment.parallelism.devices
            if option.disaggregated is None
            else option.disaggregated.devices * factor
        )
        rates = [6.0 * devices * 1000 / share.bucket.context_tokens for share in workload.shares]
        return tuple(
            Capacity(
                curve=RateCurve.through(Range(value=rate, low=rate * 0.8, high=rate * 1.2)),
                tier="transferred" if option.disaggregated else "calibrated",
                grounds="made up",
                prefill_fraction=0.25,
                measured_engine=option.measured_engine,
            )
            for rate in rates
        )

    def offered(spec: ModelSpec, placing: WorkloadOnAccelerator) -> Sequence[Option]:
        assert spec.name
        return (unit("h200", engine),) if placing.accelerator.id == "h200_sxm" else ()

    sources = Sources(
        accelerators=tuple(load_accelerator(accelerator.id) for accelerator in plan.accelerators),
        prices_of=load_prices,
        model_of=model,
        capacity_of=carried,
        capacity_note="made-up capacities",
        units_of=offered,
        verify_of=verify_of,
    )
    return make_plan(plan, sources)


def answered(result: PlanResult) -> Answer:
    assert isinstance(result.answer, Answer)
    return result.answer


def running(result: PlanResult) -> set[str]:
    return {name for pool in answered(result).winner.mix.pools for name in pool.replicas}


@pytest.fixture(scope="module")
def cheaper() -> PlanResult:
    return planned(4.0)


def test_units_that_carry_more_are_chosen_and_written_as_two_pools(cheaper: PlanResult) -> None:
    assert running(cheaper) == {unit("h200").id}
    fleet = planned_fleet(cheaper, answered(cheaper))
    ahead, after = fleet.pools
    assert (ahead.role, after.role, ahead.feeds) == ("prefill", "decode", after.name)
    assert after.replicas == 3 * ahead.replicas
    assert ahead.kv_bytes_per_s == NETWORK_BYTES_PER_S
    assert ahead.usd_per_hour == after.usd_per_hour
    assert all(set(route.weights) == {ahead.name} for route in fleet.routes)
    (group,) = fleet.nodes
    assert sum(pool.replicas * pool.devices for pool in fleet.pools) <= 8 * (group.nodes - group.spare_nodes)
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet


def test_units_that_carry_less_change_nothing() -> None:
    without, offered = planned(0.7, text=WHOLE), planned(0.7)
    assert running(offered) == running(without)
    assert answered(offered).winner.cost.total_usd == answered(without).winner.cost.total_usd
    assert answered(offered).confidence == answered(without).confidence


def test_they_are_only_considered_where_it_is_asked() -> None:
    assert running(planned(4.0, text=WHOLE)) == running(planned(0.1, text=WHOLE))


def as_promised(units: float) -> VerifyOf:
    """Replicas carry what they are planned with; units only so much of it."""

    def verify(fleet: ServingFleet) -> tuple[Check, ...]:
        checks = []
        for pool in fleet.pools:
            share = units if pool.option.disaggregated is not None else 1.0
            kept = 0.95 if share >= 1 else 0.5
            checks.append(
                Check(
                    workload="chat",
                    pool=pool.id,
                    attainment_fraction=kept,
                    required_fraction=0.95,
                    sustained_share=share,
                )
            )
        return tuple(checks)

    return verify


@pytest.fixture(scope="module")
def without_units() -> Answer:
    """The answer without units, whose factor and share then do not matter."""
    return answered(planned(1.0, text=WHOLE, verify_of=as_promised(1.0)))


@pytest.mark.parametrize("factor", [0.9, 1.05, 1.3, 2.0])
@pytest.mark.parametrize("kept", [1.0, 0.5])
def test_an_offer_of_units_never_raises_the_cost(factor: float, kept: float, without_units: Answer) -> None:
    offered = answered(planned(factor, verify_of=as_promised(kept)))
    assert offered.verified[0].met
    assert offered.winner.cost.total_usd <= without_units.winner.cost.total_usd * (1 + 1e-9)


def test_the_report_says_what_a_unit_is_and_where_kv_goes(cheaper: PlanResult) -> None:
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(render_plan(cheaper, 160))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "units of 1 prefill tp1 to 3 decode tp1 bf16 sglang" in text
    assert "each unit prefills on 1 x tp1 and decodes on 3 x tp1 (4 devices, not measured in this combination)" in text
    assert "each prefill replica sends KV cache at 50 GB/s" in text


def launches(result: PlanResult) -> tuple[PoolLaunch, ...]:
    knowledge = load_knowledge()
    return pool_launches(result, answered(result), lambda name: subject_of(open_checkpoint(name), name), knowledge)


def test_each_pool_has_the_flag_of_its_role(cheaper: PlanResult) -> None:
    ahead, after = launches(cheaper)
    assert ahead.command is not None
    assert after.command is not None
    assert "--disaggregation-mode prefill" in ahead.command
    assert "--disaggregation-mode decode" in after.command
    assert "`penstock route` does not" in ahead.note


def test_vllm_is_told_which_connector_moves_kv() -> None:
    for entry in launches(planned(4.0, engine="vllm")):
        assert entry.command is not None
        assert "--kv-transfer-config" in entry.command
        assert "VLLM_NIXL_SIDE_CHANNEL_HOST" in entry.note


def test_the_acceptance_benchmark_starts_both_kinds(cheaper: PlanResult) -> None:
    case = next(margin.case for margin in margins_of(cheaper, answered(cheaper)) if margin.case.prefill is not None)
    assert case.prefill is not None
    # Two units on a node of eight.
    assert (case.nodes, case.prefill.replicas, case.replicas) == (1, 2, 6)
    asked = Acceptance(plan="apart", cases=(case,))
    text = write_acceptance(asked)
    assert read_acceptance(text, "acceptance.yaml").cases[0].prefill == case.prefill
    assert "which only decode" in text
    plain = write_acceptance(Acceptance(plan="whole", cases=(replace(case, prefill=None),)))
    assert "prefill" not in plain.replace(case.name, "")
