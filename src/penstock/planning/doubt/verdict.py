"""What is the answer in one sentence? Who wins, by how much, how surely, and what to measure if it is close."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.planning.candidates.search import Candidate
from penstock.planning.doubt.monte_carlo import Blame, Confidence
from penstock.planning.optimum.family import Family

Outcome = Literal["wins", "too close to call", "only choice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """The answer."""

    outcome: Outcome
    winner: str
    others_usd: Mapping[str, float]
    """What the best fleet of every other label costs more, the nearest first."""
    probability: float
    """That the winning label is cheapest."""
    measure: tuple[str, ...]
    """What would settle it, the most telling first."""


def judge(family: Family, confidence: Confidence, candidates: tuple[Candidate, ...]) -> PlanVerdict:
    """Compare the winner with the best fleet of any other label."""
    winner = family.label(family.winner)
    more = {label: mix.cost_usd - family.winner.cost_usd for label, mix in family.by_label.items() if label != winner}
    outcome: Outcome = "too close to call" if confidence.too_close else "wins"
    return PlanVerdict(
        outcome=outcome if more else "only choice",
        winner=winner,
        others_usd=more,
        probability=confidence.probability.get(winner, 0.0),
        measure=tuple(_measure(entry, family, candidates) for entry in confidence.blame) if more else (),
    )


def _measure(blame: Blame, family: Family, candidates: tuple[Candidate, ...]) -> str:
    """Say what to do about an input: a benchmark for throughput, a quote for a price."""
    part = blame.subject
    settled = {
        "price": f"get a written quote for {part}, a device",
        "rent": f"get a written quote for {part}, a device-hour",
        "engineers": f"decide how many extra engineers the {part} stack takes",
        "demand": f"forecast the {part}",
        "delivery": f"get a delivery date of {part} in writing",
        "rate": f"pin down the {part}",
    }
    if blame.kind in settled:
        return settled[blame.kind]
    running = {
        replica
        for mix in family.fleets
        for pool in mix.pools
        if pool.offer.accelerator == part
        for replica in pool.replicas
    }
    placed = next((entry for entry in candidates if entry.id in running), None)
    if placed is None:
        return f"benchmark {part} on your own workload"
    model = placed.deployment.model.name
    return f"benchmark {model} on {part}, {placed.way}, {placed.weights} weights, at your lengths and SLO"
