"""Replicas that only prefill and replicas that only decode are planned as units, sized by what each kind carries."""

from dataclasses import replace
from functools import cache

import pytest

from examples import deployment, model
from penstock.catalog import load_accelerator
from penstock.fleet.disaggregated_replica import NETWORK_BYTES_PER_S, Disaggregated
from penstock.performance.disaggregated.disaggregated_prediction import predict_disaggregated
from penstock.performance.disaggregated.steady_state import PoolsDemand
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_drafts import own_drafts
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.candidate_search import find_candidates
from penstock.planning.candidates.deployment_options import WorkloadOnAccelerator
from penstock.planning.candidates.disaggregated_screen import UnitScreen
from penstock.planning.candidates.disaggregated_units import find_units
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Capacity, Option, RateCurve
from penstock.planning.spec.plan_types import AcceleratorPlan, Bucket, Share, WorkloadPlan
from penstock.planning.verification.pool_simulator import Simulator
from penstock.planning.verification.simulated_capacity import PoolLoad
from penstock.simulation.capacity import capacity
from penstock.simulation.placement import disaggregated_pools, place_on
from penstock.workload import Fixed, Poisson, SloClass, Workload, parse_slo
from small_plans import TWO_PARTS, plan_of

LONG, SHORT = Bucket(input_tokens=8192, output_tokens=1024), Bucket(input_tokens=1024, output_tokens=1024)
SLO = parse_slo("ttft=5s,tpot=20ms,attain=95%")
SCREEN = UnitScreen(QueuelessScreen(shipped_efficiencies()), shipped_phase_factors())


def workload(*lengths: Bucket, engines: tuple[str, ...] = (), rate: float = 60.0) -> WorkloadPlan:
    shares = tuple(Share(bucket=bucket, fraction=1 / len(lengths)) for bucket in lengths)
    chat = plan_of(TWO_PARTS).workloads[0]
    return replace(chat, model="deepseek-r1", slo=SLO, shares=shares, requests_per_s=rate, engines=engines)


def placing(asked: WorkloadPlan, on: str) -> WorkloadOnAccelerator:
    accelerator = load_accelerator(on)
    return WorkloadOnAccelerator(
        workload=asked, accelerator=accelerator, planned=AcceleratorPlan(id=accelerator.id), drafts_of=lambda *_: None
    )


@cache
def units(on: str, *lengths: Bucket, engines: tuple[str, ...] = (), rate: float = 60.0) -> tuple[Option, ...]:
    asked = workload(*lengths, engines=engines, rate=rate)
    return tuple(find_units(model(asked.model), placing(asked, on), SCREEN))


def of(option: Option) -> Disaggregated:
    assert option.disaggregated is not None
    return option.disaggregated


def prefill_share(option: Option) -> float:
    unit = of(option)
    return unit.prefill_replicas * unit.prefill.parallelism.devices / unit.devices


@pytest.mark.parametrize("on", ["b200", "gb200", "mi355x"])
def test_a_unit_divides_a_node_or_fills_whole_ones(on: str) -> None:
    found, node = units(on, LONG), load_accelerator(on).node.devices
    assert 1 <= len(found) <= 3
    for option in found:
        devices = of(option).devices
        assert devices <= 64
        assert node % devices == 0 or devices % node == 0


def test_a_part_that_nobody_measured_apart_is_offered_none() -> None:
    assert units("mi300x", LONG) == ()


def test_an_engine_that_is_asked_for_is_the_only_one() -> None:
    assert {option.measured_engine for option in units("b200", LONG, engines=("sglang",))} == {"sglang"}
    assert units("b200", LONG, engines=("atom",)) == ()


def test_engines_that_served_the_model_apart_come_before_others() -> None:
    apart = shipped_phase_factors()
    served = apart.engines("b200_sxm", model("deepseek-r1"))
    assert set(served) < set(apart.engines("b200_sxm"))
    assert {option.measured_engine for option in units("b200", LONG)} <= set(served)
    assert apart.engines("b200_sxm", model("llama-3.1-8b")) == ()


def test_longer_prompts_get_more_of_the_devices() -> None:
    assert prefill_share(units("b200", LONG)[0]) > prefill_share(units("b200", SHORT)[0])


def test_prompts_come_about_as_fast_as_answers() -> None:
    unit, engine = of(units("gb200", LONG)[0]), units("gb200", LONG)[0].measured_engine
    (rates,) = SCREEN.rates([(unit, engine)], LONG, SLO)
    ahead, after = rates.prefill_per_s * unit.prefill_replicas, rates.decode_per_s * unit.decode_replicas
    assert 0.5 < ahead / after < 2


def test_a_small_load_gets_a_small_unit() -> None:
    assert of(units("gb200", LONG, rate=0.5)[0]).devices < of(units("gb200", LONG)[0]).devices


def test_a_setup_nobody_ran_apart_is_off_by_more() -> None:
    spreads: dict[str, list[float]] = {"calibrated": [], "transferred": []}
    for engine in ("sglang", "trtllm", "vllm"):
        for option in units("b200", LONG, engines=(engine,)):
            (seen,) = SCREEN(option, workload(LONG))
            spreads[seen.tier].append(seen.requests_per_s.high / seen.requests_per_s.low)
    assert min(spreads["transferred"]) > max(spreads["calibrated"])
    assert min(spreads["calibrated"]) > 1.3


def test_the_long_run_is_the_one_predict_says() -> None:
    option = units("b200", LONG)[0]
    unit, (seen,) = of(option), SCREEN(option, workload(LONG))
    rate = seen.requests_per_s.value
    for factor, kept in ((1.0, True), (1.02, False)):
        demand = PoolsDemand(
            input_tokens=LONG.input_tokens, output_tokens=LONG.output_tokens, requests_per_s=factor * rate
        )
        said = predict_disaggregated(
            unit, option.measured_engine, demand, shipped_efficiencies(), shipped_phase_factors()
        )
        assert (said.tpot_s.value <= 0.02 and said.ttft_s.value <= 5) == kept


def load(option: Option, count: int, rate: float) -> PoolLoad:
    return PoolLoad(option=option, replicas=count, mix=((LONG, 1.0),), requests_per_s=rate, slo=SLO)


def test_a_unit_carries_here_what_the_simulate_command_says_of_it() -> None:
    option = units("b200", LONG)[0]
    unit, simulator = of(option), Simulator(SCREEN.loop, units=SCREEN)
    demand = PoolsDemand(input_tokens=LONG.input_tokens, output_tokens=LONG.output_tokens, users=64)
    said = predict_disaggregated(unit, option.measured_engine, demand, shipped_efficiencies(), shipped_phase_factors())
    ahead, after = (
        place_on(
            SCREEN.loop.compiled_on(placed, option.measured_engine).work,
            stack,
            typical_lengths=(LONG.input_tokens, LONG.output_tokens),
            measured_engine=option.measured_engine,
        ).replica
        for placed, stack in ((unit.prefill, said.prefill), (unit.decode, said.decode))
    )
    assert ahead is not None
    assert after is not None
    pools = disaggregated_pools(unit, ahead, after, name="pool")
    assert pools == simulator.pools(load(option, 1, 1.0))
    classes = (SloClass(name="all", share_fraction=1.0, slo=SLO),)
    lengths = Fixed(input_tokens=LONG.input_tokens, output_tokens=LONG.output_tokens)
    asked = Workload(name="long", arrivals=Poisson(), lengths=lengths, classes=classes)
    rate = capacity(pools, asked, classes=classes).rate_per_s
    assert simulator.sustained(load(option, 1, rate)) == pytest.approx(rate, rel=0.01)


def test_units_carry_about_what_the_long_run_says_and_share_bursts() -> None:
    option = units("b200", LONG)[0]
    (seen,) = SCREEN(option, workload(LONG))
    rate, simulator = seen.requests_per_s.value, Simulator(SCREEN.loop, units=SCREEN)
    one, four = (simulator.sketched(load(option, count, count * rate)) / count for count in (1, 4))
    assert 0.5 * rate < one < four * 1.02 < 1.2 * rate


def test_units_that_are_offered_take_nothing_away() -> None:
    asked = workload(LONG)
    on = load_accelerator("b200")

    def rated(option: Option, plan: WorkloadPlan) -> tuple[Capacity, ...]:
        value = 100.0 if option.disaggregated is not None else 1.0
        range_ = Range(value=value, low=value, high=value)
        made_up = Capacity(curve=RateCurve.through(range_), tier="calibrated", grounds="made up", prefill_fraction=None)
        return (made_up,) * len(plan.shares)

    def found(*, offered: bool) -> set[str]:
        choice = find_candidates(
            asked,
            model("deepseek-r1"),
            [(on, AcceleratorPlan(id=on.id))],
            rated,
            units_of=lambda *_: units("b200", LONG) if offered else (),
        )
        return {entry.id for entry in choice.candidates}

    assert found(offered=False) < found(offered=True)


def test_units_that_replicas_of_the_same_part_beat_are_not_kept() -> None:
    on = load_accelerator("b200")
    simulated: list[str] = []

    def rated(option: Option, plan: WorkloadPlan) -> tuple[Capacity, ...]:
        simulated.append(option.id)
        value = 0.1 if option.disaggregated is not None else 1.0
        range_ = Range(value=value, low=value, high=value)
        made_up = Capacity(curve=RateCurve.through(range_), tier="calibrated", grounds="made up", prefill_fraction=None)
        return (made_up,) * len(plan.shares)

    choice = find_candidates(
        workload(LONG),
        model("deepseek-r1"),
        [(on, AcceleratorPlan(id=on.id))],
        rated,
        screen=lambda option, plan: tuple(replace(one, grounds="bound") for one in rated(option, plan)[:1]),
        units_of=lambda *_: units("b200", LONG),
    )
    assert all(entry.disaggregated is None for entry in choice.candidates)
    # Asked about by the screen, never by the simulator.
    assert all(simulated.count(option.id) == 1 for option in units("b200", LONG))


@pytest.mark.parametrize(
    ("name", "weights", "on", "kept"), [("kimi-k2.5", "nvfp4", "gb200", True), ("deepseek-r1", "fp8", "h200", False)]
)
def test_units_stay_where_long_prompts_hold_up_answers_and_not_where_drafts_do_more(
    name: str, weights: str, on: str, *, kept: bool
) -> None:
    """By the long run alone: Kimi-K2.5 brings no draft layers, DeepSeek-R1 does."""
    accelerator = load_accelerator(on)
    choice = find_candidates(
        replace(workload(LONG), model=name, weights=(weights,)),
        model(name),
        [(accelerator, AcceleratorPlan(id=accelerator.id))],
        SCREEN,
        engines_of=shipped_efficiencies().engines,
        drafts_of=own_drafts,
        units_of=lambda spec, placed: find_units(spec, placed, SCREEN),
    )
    assert any(entry.disaggregated is None for entry in choice.candidates)
    assert any(entry.disaggregated is not None for entry in choice.candidates) == kept


def test_kv_goes_over_the_network_from_every_device() -> None:
    unit = of(units("b200", LONG)[0])
    assert unit.sending_bytes_per_s == NETWORK_BYTES_PER_S * unit.prefill.parallelism.devices


def test_a_unit_is_not_simulated_by_what_knows_nothing_of_engines_apart() -> None:
    option = replace(units("b200", LONG)[0], deployment=deployment("deepseek-r1", "b200", tp=8))
    with pytest.raises(ValueError, match="only prefill or only decode"):
        Simulator(SCREEN.loop).sustained(load(option, 1, 1.0))
