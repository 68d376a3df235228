"""The shipped plans: each is answered, and what it prints is kept. Refreshed only by `pytest --update-golden`."""

from collections.abc import Callable
from io import StringIO
from itertools import groupby
from math import ceil
from pathlib import Path

import pytest
from rich.console import Console

from penstock.api.plan import sources_of
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.planning.make_plan import Answer, PlanResult, make_plan
from penstock.planning.optimizer.problem import PoolPeriod
from penstock.planning.planned_fleet import planned_fleet
from penstock.planning.spec.plan_yaml import parse_plan
from penstock.planning.verification.serving_fleet import pool_id
from penstock.report.plan.terminal import render_plan
from small_plans import TODAY

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "plans"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
_SOLVED: dict[str, PlanResult] = {}


def answered(name: str) -> PlanResult:
    if name not in _SOLVED:
        path = FOLDER / f"{name}.yaml"
        plan = parse_plan(path.read_text(encoding="utf-8"), path.name, today=TODAY)
        _SOLVED[name] = make_plan(plan, sources_of(plan, FOLDER))
    return _SOLVED[name]


def test_all_scenarios_are_there() -> None:
    assert NAMES == [
        "agentic-trace",
        "chat-70b-512-users",
        "contract-rents",
        "deepseek-expert-parallel",
        "deepseek-r1-fp8",
        "dual-vendor",
        "kimi-prompts-apart",
        "latency-8b",
        "long-context-70b-405b",
        "mi325x-now-or-mi350x-later",
        "owned-64-h100",
        "scorecard-800-accelerators",
        "three-models",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_example(name: str, golden: Callable[[str, str], None]) -> None:
    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(render_plan(answered(name), 120))
    assert isinstance(console.file, StringIO)
    golden(f"plan_{name}.txt", console.file.getvalue())


@pytest.mark.parametrize("name", NAMES)
def test_every_example_has_a_fleet_that_costs_what_its_lines_say(name: str) -> None:
    answer = answered(name).answer
    assert isinstance(answer, Answer)
    cost = answer.winner.cost
    assert cost.total_usd == pytest.approx(answer.winner.mix.cost_usd)
    assert sum(line.usd for line in cost.lines) == pytest.approx(cost.total_usd)
    assert answer.winner.mix.gap_fraction <= 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_no_example_keeps_its_promise_with_a_node_less_unless_it_has_many(name: str) -> None:
    """What pools sustain above what they are given adds up to no node, or to one of more than sixteen: no margin."""
    result = answered(name)
    assert isinstance(result.answer, Answer)
    devices = {entry.id: entry.devices for entry in result.candidates}
    verified = result.answer.verified[0]
    checks = list(verified.pools)
    for _, group in groupby(sorted(verified.mix.pools, key=_period), key=_period):
        pools = list(group)
        named = [pool_id(kind, nodes.offer.site) for nodes in pools for kind in nodes.replicas]
        sustained = {check.pool: check.sustained_share for check in checks[: len(named)]}
        del checks[: len(named)]
        for nodes in pools:
            needed = 0
            for kind, count in nodes.replicas.items():
                share = sustained[pool_id(kind, nodes.offer.site)]
                assert share is not None
                needed += ceil(count / max(1.0, share) - 1e-9) * devices[kind]
            serving = nodes.nodes - nodes.spare_nodes
            assert 0 <= serving - ceil(needed / nodes.offer.devices) <= serving // 16
    assert not checks


def _period(nodes: PoolPeriod) -> int:
    return nodes.period


@pytest.mark.parametrize("name", NAMES)
def test_the_fleet_every_example_leaves_behind_reads_back_equal(name: str) -> None:
    result = answered(name)
    assert isinstance(result.answer, Answer)
    fleet = planned_fleet(result, result.answer)
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet


def test_the_scorecards_figures_are_not_what_its_inputs_give() -> None:
    (check,) = answered("scorecard-800-accelerators").claims
    assert not any(reading.reproduces_claim or reading.reproduces_claim_with_engineers for reading in check.readings)
    assert round(check.engineers_for_the_drop, 1) == 5.7
    answer = answered("scorecard-800-accelerators").answer
    assert isinstance(answer, Answer)
    nvidia = answer.by_label["nvidia"].mix
    # 800 devices are more than this demand takes by our estimate, once replicas share a router.
    assert 560 <= nvidia.nodes_of("h200_sxm", 0) * 8 < 800


def test_deepseek_r1_stays_in_fp8_on_replicas_that_hold_its_671_billion_bytes() -> None:
    result = answered("deepseek-r1-fp8")
    assert {entry.weights for entry in result.candidates} == {"fp8"}
    assert all(entry.devices * entry.accelerator.usable_hbm_bytes > 671e9 for entry in result.candidates)


def test_deepseek_at_scale_has_its_experts_spread_and_drafts_and_says_so_in_the_fleet() -> None:
    result = answered("deepseek-expert-parallel")
    assert isinstance(result.answer, Answer)
    for pool in planned_fleet(result, result.answer).pools:
        assert (pool.tp, pool.ep) == (1, True)
        assert pool.dp > 1
        assert pool.drafted_tokens == 1
        assert f"dp{pool.dp}-ep-mtp1" in pool.name


def test_kimi_with_long_prompts_has_them_computed_apart_and_says_who_feeds_whom() -> None:
    result = answered("kimi-prompts-apart")
    assert isinstance(result.answer, Answer)
    pools = {pool.name: pool for pool in planned_fleet(result, result.answer).pools}
    ahead = [pool for pool in pools.values() if pool.role == "prefill"]
    assert ahead
    assert all(pool.feeds is not None and pools[pool.feeds].role == "decode" for pool in ahead)


def test_gpt_oss_is_considered_on_parts_that_widen_its_weights() -> None:
    placed = {entry.accelerator.id for entry in answered("three-models").candidates if entry.workload == "chat"}
    assert {"h100_sxm", "h200_sxm", "mi300x"} <= placed


def test_a_trace_with_shared_prompts_says_that_they_are_planned_as_computed_again() -> None:
    (note,) = [entry for entry in answered("agentic-trace").left_out if "prefix cache" in entry.what]
    assert note.why.startswith("92% of the trace's prompt tokens")


def test_waiting_for_the_mi350x_is_bridged_by_rent_and_loses_if_it_comes_too_late() -> None:
    answer = answered("mi325x-now-or-mi350x-later").answer
    assert isinstance(answer, Answer)
    mix = answer.winner.mix
    assert mix.nodes_of("mi350x", 0) == 0
    assert all(pool.rented_nodes and not pool.owned_nodes for pool in mix.pools if pool.offer.accelerator == "mi325x")
    assert any(flip.kind == "delivery" and flip.side == "above" for flip in answer.flips)
