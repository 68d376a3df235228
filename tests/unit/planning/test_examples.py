"""The shipped plans: one test answers each and checks winner, cost and verdict; `pytest --update-golden` refreshes."""

from collections.abc import Callable
from io import StringIO
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from effort import THOROUGH
from expected_plans import check_expected
from penstock.api.fleet_check import check_fleet
from penstock.api.plan import sources_of
from penstock.api.progress import LOG
from penstock.checkpoint import open_checkpoint
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.fleet.pools import UNSTATED
from penstock.planning.make_plan import make_plan
from penstock.planning.optimizer.problem import PoolPeriod
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.planned_fleet import planned_fleet
from penstock.planning.pool_launches import launched_fleet
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.uncertainty import quantify_uncertainty
from penstock.planning.verification.serving_fleet import pool_id
from penstock.preflight import load_knowledge
from penstock.preflight.facts.subject import subject_of
from penstock.report.plan.terminal import render_plan
from small_plans import TODAY

FOLDER: Final = Path(__file__).resolve().parents[3] / "examples" / "plans"
NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.yaml"))
LONGEST: Final = {"contract-rents", "owned-64-h100"}
"""Plans whose flips take minutes to find, which only `make plans` does.

The search for flips may also find a cheaper fleet, so the table has a second entry: the answer without that search.
"""
PRINTED: Final = "chat-and-agent"
"""The plan whose whole report is kept as a golden file."""


def solved_example(name: str) -> PlanResult:
    path = FOLDER / f"{name}.yaml"
    plan = parse_plan(path.read_text(encoding="utf-8"), path.name, today=TODAY)
    return make_plan(plan, sources_of(plan, FOLDER))


def printed(result: PlanResult) -> str:
    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(render_plan(result, 120))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_all_scenarios_are_there() -> None:
    assert NAMES == [
        "agentic-trace",
        "chat-70b-512-users",
        "chat-and-agent",
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


@pytest.mark.long
@pytest.mark.in_turn(4)
@pytest.mark.parametrize("name", NAMES)
def test_example(
    name: str, golden: Callable[[str, str], None], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One plan is one test, so that test processes share the plans and none is solved twice."""
    update = bool(request.config.getoption("--update-golden"))
    with_flips = THOROUGH or name not in LONGEST
    if not with_flips:
        monkeypatch.setattr(quantify_uncertainty, "settled_flips", lambda judge, *_: ((), judge.family))
    result = solved_example(name)
    text = printed(result)
    if name == PRINTED:
        golden(f"plan_{name}.txt", text)
    check_cost_lines(result)
    check_no_node_is_spare(result)
    check_fleet_reads_back(result)
    check_every_pool_launches(result)
    if name in CHECKS:
        CHECKS[name](result)
    check_expected(name if with_flips else f"{name} without flips", result, update=update)


def answer_of(result: PlanResult) -> Answer:
    assert isinstance(result.answer, Answer)
    return result.answer


def check_cost_lines(result: PlanResult) -> None:
    """The bill is the cost that was minimised, line by line, to a thousandth of the optimum."""
    answer = answer_of(result)
    cost = answer.winner.cost
    assert cost.total_usd == pytest.approx(answer.winner.mix.cost_usd)
    assert sum(line.usd for line in cost.lines) == pytest.approx(cost.total_usd)
    assert answer.winner.mix.gap_fraction <= 1e-3


def check_no_node_is_spare(result: PlanResult) -> None:
    """The load that pools could take on top amounts to less than one node, or to at most one in sixteen."""
    devices = {entry.id: entry.devices for entry in result.candidates}
    verified = answer_of(result).verified[0]
    checks = list(verified.pools)
    for _, group in groupby(sorted(verified.mix.pools, key=_period), key=_period):
        pools = list(group)
        named = [pool_id(kind, nodes.offer) for nodes in pools for kind in nodes.replicas]
        sustained = {}
        while checks and checks[0].pool in named and checks[0].pool not in sustained:
            check = checks.pop(0)
            sustained[check.pool] = check.sustained_share
        for nodes in pools:
            needed = 0
            for kind, count in nodes.replicas.items():
                if pool_id(kind, nodes.offer) not in sustained:
                    continue  # replicas without load, which need no node
                share = sustained[pool_id(kind, nodes.offer)]
                assert share is not None
                fewer = ceil(count / max(1.0, share) - 1e-9)
                # Bursts do not spread over a single replica: alone it carries about 9% less than in a pool.
                fewer = ceil(count / max(1.0, 0.91 * share) - 1e-9) if fewer == 1 else fewer
                needed += fewer * devices[kind]
            serving = nodes.nodes - nodes.spare_nodes
            assert 0 <= serving - ceil(needed / nodes.offer.devices) <= serving // 16
    assert not checks


def _period(nodes: PoolPeriod) -> int:
    return nodes.period


def check_fleet_reads_back(result: PlanResult) -> None:
    fleet = planned_fleet(result, answer_of(result))
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet


def check_every_pool_launches(result: PlanResult) -> None:
    """`preflight --fleet` passes every pool of every period, and the file states its image and launch."""
    answer, knowledge = answer_of(result), load_knowledge()
    for period in range(result.problem.periods):
        fleet = launched_fleet(result, answer, period, lambda name: subject_of(open_checkpoint(name), name), knowledge)
        _, checks = check_fleet(fleet, knowledge, LOG)
        assert all(check.passes for check in checks)
        assert all(pool.engine.launch and pool.engine.version != UNSTATED for pool in fleet.pools)
        assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet


def check_scorecard(result: PlanResult) -> None:
    """The scorecard's figures do not follow from its inputs."""
    (check,) = result.claims
    assert not any(reading.reproduces_claim or reading.reproduces_claim_with_engineers for reading in check.readings)
    assert round(check.engineers_for_the_drop, 1) == 5.7
    nvidia = answer_of(result).by_label["nvidia"].mix
    # By our estimate this demand takes fewer than 800 devices once replicas share a router.
    assert 560 <= nvidia.nodes_of("h200_sxm", 0) * 8 < 800


def check_deepseek_r1(result: PlanResult) -> None:
    """It stays in FP8, on replicas that hold its 671 billion bytes."""
    assert {entry.weights for entry in result.candidates} == {"fp8"}
    assert all(entry.devices * entry.accelerator.usable_hbm_bytes > 671e9 for entry in result.candidates)


def check_expert_parallel(result: PlanResult) -> None:
    """The experts are spread and drafts are used, and the fleet file says so."""
    for pool in planned_fleet(result, answer_of(result)).pools:
        assert (pool.split.tp, pool.split.expert_parallel) == (1, True)
        assert pool.split.dp > 1
        assert pool.drafted_tokens == 1
        assert f"dp{pool.split.dp}-ep-mtp1" in pool.name


def check_kimi(result: PlanResult) -> None:
    """Prefill runs on its own pools, and the fleet file says which decode pool each of them feeds."""
    pools = {pool.name: pool for pool in planned_fleet(result, answer_of(result)).pools}
    ahead = [pool for pool in pools.values() if pool.role == "prefill"]
    assert ahead
    assert all(pool.feeds is not None and pools[pool.feeds].role == "decode" for pool in ahead)


def check_three_models(result: PlanResult) -> None:
    """gpt-oss is considered on accelerators that widen its weights."""
    placed = {entry.accelerator.id for entry in result.candidates if entry.workload == "chat"}
    assert {"h100_sxm", "h200_sxm", "mi300x"} <= placed


def check_agentic_trace(result: PlanResult) -> None:
    """The plan says that it computes shared prompts again."""
    (note,) = [entry for entry in result.left_out if "prefix cache" in entry.what]
    assert note.why.startswith("92% of the trace's prompt tokens")


def check_mi350x(result: PlanResult) -> None:
    """Rent bridges the wait for the MI350X, which loses if it comes too late."""
    answer = answer_of(result)
    mix = answer.winner.mix
    assert mix.nodes_of("mi350x", 0) == 0
    assert all(pool.rented_nodes and not pool.owned_nodes for pool in mix.pools if pool.offer.accelerator == "mi325x")
    assert any(flip.kind == "delivery" and flip.side == "above" for flip in answer.flips)


CHECKS: Final[dict[str, Callable[[PlanResult], None]]] = {
    "agentic-trace": check_agentic_trace,
    "deepseek-expert-parallel": check_expert_parallel,
    "deepseek-r1-fp8": check_deepseek_r1,
    "kimi-prompts-apart": check_kimi,
    "mi325x-now-or-mi350x-later": check_mi350x,
    "scorecard-800-accelerators": check_scorecard,
    "three-models": check_three_models,
}
"""What only one plan must show."""
