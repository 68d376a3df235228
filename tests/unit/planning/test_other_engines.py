"""A plan says what engines that cannot be launched would save, how old its software is, and which router it assumes."""

from dataclasses import replace
from datetime import date
from math import ceil

import pytest

from examples import model
from penstock.catalog import load_accelerator
from penstock.fleet import Deployment
from penstock.performance.calibration.first_token_regression import Software
from penstock.planning.candidates.replica_capacity import Capacity, Option, length_by_length
from penstock.planning.make_plan import make_plan
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.verification.plain_router import PlainRouter, price_plain_router
from penstock.planning.verification.serving_fleet import Check, ServingFleet, VerifyOf
from penstock.report.plan.engine_sentences import engine_sentences
from penstock.report.plan.sentences import unit_word
from penstock.workload.slo import Slo
from small_plans import PLAIN, TWO_PARTS, capacities, plan_of, solved, whole_node_prices

ONE_PART = TWO_PARTS.replace("  - {id: h200, buy_usd: {value: 32000, low: 24000, high: 36000}, tp: [1]}\n", "")
EACH = {"mi300x": 4.0, "h200_sxm": 6.0}
"""Requests of a thousand tokens per second and device."""
DAYS = {"vllm": date(2025, 10, 29), "atom": date(2026, 8, 10)}


def capacity_of(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
    """ATOM serves three times as many requests as vLLM."""
    engine = "atom" if (deployment.engine.stands_for or "").startswith("atom") else "vllm"
    made_up = capacities({"mi300x": 4.0 if engine == "vllm" else 12.0})(deployment, bucket, slo)
    software = Software(scenario="made up", version="1.0", date=DAYS[engine])
    return replace(made_up, measured_engine=engine, software=software)


def planned(obstacle: str | None, text: str = ONE_PART) -> PlanResult:
    """Solve a plan in which preflight passes vLLM, and ATOM only without an obstacle."""
    plan = plan_of(text)

    def obstacle_of(option: Option, _: str) -> str | None:
        return obstacle if option.measured_engine == "atom" else None

    sources = Sources(
        accelerators=tuple(load_accelerator(part.id) for part in plan.accelerators),
        prices_of=whole_node_prices,
        model_of=model,
        capacity_of=length_by_length(capacity_of),
        capacity_note="made-up capacities",
        engines_of=lambda *_: ("atom", "vllm"),
        obstacle_of=obstacle_of,
    )
    return make_plan(plan, sources)


def answered(result: PlanResult) -> Answer:
    assert isinstance(result.answer, Answer)
    return result.answer


def test_an_engine_that_cannot_be_launched_is_no_part_of_the_answer_but_its_saving_is_said() -> None:
    free, blocked = answered(planned(None)), planned("preflight does not pass atom 0.1.6rc0: no image")
    answer = answered(blocked)
    assert {entry.measured_engine for entry in blocked.candidates} == {"vllm"}
    assert free.engine_saving is None
    assert answer.engine_saving is not None
    assert answer.engine_saving.engines == ("atom",)
    saved = answer.winner.mix.cost_usd - free.winner.mix.cost_usd
    assert answer.engine_saving.usd == pytest.approx(saved, rel=1e-3)
    (said,) = [text for text in engine_sentences(blocked, answer) if "would save" in text]
    assert said.startswith("mi300x with ATOM would save $")
    assert said.endswith("but preflight does not pass atom 0.1.6rc0: no image.")


def test_the_days_of_the_software_stand_beneath_the_verdict() -> None:
    result = planned(None)
    (said,) = [text for text in engine_sentences(result, answered(result)) if "software" in text]
    assert said == ("Speeds are predicted for the newest measured software: mi300x with ATOM 1.0 of 2026-08-10.")


@pytest.mark.parametrize(
    ("share", "more", "said"),
    [
        (0.97, (0, 0.0), "round robin meets them too (97%"),
        (
            0.9,
            (2, 5000.0),
            "90% of chat requests in time; a fleet that meets them with it has 2 more",
        ),
        (0.9, (0, 5000.0), "a fleet that meets them with it costs $5,000 more."),
        (0.9, (0, 0.0), "a fleet that meets them with it costs the same."),
        (0.9, (None, None), "no larger fleet of these accelerators was found"),
    ],
)
def test_the_assumed_router_is_said_with_what_a_plain_one_costs(
    share: float, more: tuple[int | None, float | None], said: str
) -> None:
    result = planned(None)
    check = Check(workload="chat", attainment_fraction=share, required_fraction=0.95)
    plain = PlainRouter(checks=(check,), more_nodes=more[0], more_usd=more[1])
    answer = replace(answered(result), round_robin=plain)
    (router,) = [text for text in engine_sentences(result, answer) if "penstock route" in text]
    assert said in router


def test_a_fleet_is_sized_for_a_router_with_which_the_planned_one_misses() -> None:
    """A router with which replicas carry half as much takes the nodes that half the capacity takes."""

    def verify(carried: float) -> VerifyOf:
        def verify_of(fleet: ServingFleet) -> tuple[Check, ...]:
            found = []
            for pool in fleet.pools:
                most = carried * EACH[pool.option.deployment.accelerator.id] * 1000 / 1280 * pool.replicas
                share = most / sum(s.requests_per_s * s.shares.get(pool.id, 0.0) for s in fleet.streams)
                found.append(
                    Check(
                        workload="chat",
                        pool=pool.id,
                        attainment_fraction=1.0 if share >= 1 - 1e-6 else 0.5,
                        required_fraction=0.95,
                        sustained_share=share,
                    )
                )
            return tuple(found)

        return verify_of

    result = solved(PLAIN, spread=0.0, verify_of=verify(1.0))
    mix = answered(result).winner.mix
    asked = (mix, result.problem, result.candidates, result.plan.workloads)
    same, worse = (price_plain_router(*asked, verify(carried)) for carried in (1.0, 0.5))
    assert same is not None
    assert worse is not None
    assert (same.met, same.more_nodes, same.more_usd) == (True, 0, 0.0)
    assert not worse.met
    (accelerator,) = mix.support
    devices = 40 / (0.8 * 0.5 * EACH[accelerator] * 1000 / 1280)
    assert worse.more_nodes == ceil(devices / 8) + 1 - mix.largest_nodes > 0
    assert worse.more_usd is not None
    assert worse.more_usd > 0


def test_what_is_rented_is_an_instance_and_what_is_bought_is_a_node() -> None:
    bought = answered(solved(TWO_PARTS)).winner.mix
    assert unit_word(bought) == "node"
    rented = replace(
        bought, pools=tuple(replace(pool, owned_nodes=0, rented_nodes=pool.owned_nodes) for pool in bought.pools)
    )
    assert unit_word(rented) == "instance"
    assert unit_word(replace(bought, pools=(*bought.pools, *rented.pools))) == "node"
