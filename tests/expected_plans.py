"""The expected answers of the shipped plans, in one table: `pytest --update-golden` rewrites a plan's entry."""

import fcntl
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pytest

from penstock.planning.plan_result import Answer, PlanResult

TABLE: Final = Path(__file__).resolve().parent / "golden" / "plans.json"
COST_TOLERANCE: Final = 0.01
PROBABILITY_TOLERANCE: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class ExpectedPlan:
    """What a plan must answer: counts and names exactly, amounts within 1%."""

    winner: str
    outcome: str
    meets_slo: bool
    nodes: dict[str, int]
    """Nodes of the winner by period, accelerator and form of acquisition."""
    replicas: dict[str, int]
    """Replicas of the winner by period and kind."""
    probability: float
    """How often the winner is cheapest."""
    usd: dict[str, float]
    """Cost of the winner and of the best fleet of each label, its P10, median and P90, capex, opex and regret."""
    flips: dict[str, float]
    """The value of each input at which another label wins."""


def summary(result: PlanResult) -> ExpectedPlan:
    """Return what the table holds of a result."""
    answer = result.answer
    assert isinstance(answer, Answer)
    nodes: dict[str, int] = {}
    replicas: dict[str, int] = {}
    for pool in answer.winner.mix.pools:
        where = f"{pool.period} {pool.offer.accelerator}"
        acquired = {"kept": pool.kept_nodes, "bought": pool.owned_nodes, "by the hour": pool.rented_nodes}
        acquired |= {f"contract {number}": count for number, count in enumerate(pool.contract_nodes)}
        acquired["spare"] = pool.spare_nodes
        for how, count in acquired.items():
            if count:
                nodes[f"{where} {how}"] = nodes.get(f"{where} {how}", 0) + count
        for kind, count in pool.replicas.items():
            replicas[f"{pool.period} {kind}"] = replicas.get(f"{pool.period} {kind}", 0) + count
    verdict = answer.verdict
    usd = {
        "winner": answer.winner.cost.total_usd,
        **{f"best {label}": bill.cost.total_usd for label, bill in answer.by_label.items()},
        "P10": verdict.cost_usd.low,
        "median": verdict.cost_usd.median,
        "P90": verdict.cost_usd.high,
        "capex": answer.winner.cash.capex_usd,
        "opex": answer.winner.cash.opex_usd,
        "regret": answer.regret_usd or 0.0,
    }
    return ExpectedPlan(
        winner=verdict.winner,
        outcome=verdict.outcome,
        meets_slo=answer.verified[0].met,
        nodes=nodes,
        replicas=replicas,
        probability=round(verdict.probability, 3),
        usd={name: float(f"{amount:.6g}") for name, amount in usd.items()},
        flips={f"{flip.kind} {flip.subject} {flip.side}": float(f"{flip.at:.4g}") for flip in answer.flips},
    )


def check_expected(name: str, result: PlanResult, *, update: bool) -> None:
    """Compare a result with its entry of the table, which is rewritten first if `update` is set."""
    found = summary(result)
    if update:
        _write_entry(name, found)
    expected = ExpectedPlan(**json.loads(TABLE.read_text(encoding="utf-8"))[name])
    assert _exact(found) == _exact(expected), f"{name} changed; if that is intended, run pytest --update-golden"
    assert found.usd == pytest.approx(expected.usd, rel=COST_TOLERANCE)
    assert found.flips == pytest.approx(expected.flips, rel=COST_TOLERANCE)
    assert found.probability == pytest.approx(expected.probability, abs=PROBABILITY_TOLERANCE)


def _exact(plan: ExpectedPlan) -> tuple[object, ...]:
    return (plan.winner, plan.outcome, plan.meets_slo, plan.nodes, plan.replicas)


def _write_entry(name: str, found: ExpectedPlan) -> None:
    """Replace one entry; several test processes may do so at once."""
    with TABLE.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        entries = json.loads(file.read() or "{}")
        entries[name] = asdict(found)
        file.truncate(0)
        file.write(json.dumps(dict(sorted(entries.items())), indent=1) + "\n")
