"""What is the answer in one sentence? Who wins, by how much, how surely, and what to measure if it is close."""

from dataclasses import dataclass
from typing import Literal

from penstock.planning.candidates import Candidate
from penstock.planning.family import Family
from penstock.planning.monte_carlo import Confidence

Outcome = Literal["wins", "too close to call", "only choice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer."""

    outcome: Outcome
    winner: str
    next_best: str | None
    saving_usd: float | None
    """Over the best fleet of another label, as planned."""
    probability: float
    """That the winning label is cheapest."""
    measure: tuple[str, ...]
    """What would settle it, the most telling first."""


def judge(family: Family, confidence: Confidence, candidates: tuple[Candidate, ...]) -> Verdict:
    """Compare the winner with the best fleet of any other label."""
    winner = family.winner
    others = sorted((mix for mix in family.fleets if mix.label != winner.label), key=lambda mix: mix.cost_usd)
    if not others:
        return Verdict(
            outcome="only choice", winner=winner.label, next_best=None, saving_usd=None, probability=1.0, measure=()
        )
    return Verdict(
        outcome="too close to call" if confidence.too_close else "wins",
        winner=winner.label,
        next_best=others[0].label,
        saving_usd=others[0].cost_usd - winner.cost_usd,
        probability=confidence.probability.get(winner.label, 0.0),
        measure=tuple(_measure(entry.name, family, candidates) for entry in confidence.blame),
    )


def _measure(name: str, family: Family, candidates: tuple[Candidate, ...]) -> str:
    """Say what to do about an input: a benchmark for throughput, a quote for a price."""
    part, _, kind = name.rpartition(" ")
    if kind != "throughput":
        return f"a written quote for {part} ({'per device' if kind == 'price' else 'per hour'})"
    running = {
        replica
        for mix in family.fleets
        for pool in mix.pools
        if pool.offer.accelerator == part
        for replica in pool.replicas
    }
    placed = next((entry for entry in candidates if entry.id in running), None)
    if placed is None:
        return f"{part} on your own workload"
    bucket_note = placed.deployment.parallelism
    return f"{placed.deployment.model.name} on {part}, {bucket_note}, {placed.weights} weights, at your lengths and SLO"
