"""What is the answer in one sentence? Who wins, by how much, how surely, and what to measure if it is close."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.uncertainty.monte_carlo import Blame, Confidence, Span
from penstock.planning.uncertainty.sensitivity import Flip

Outcome = Literal["wins", "too close to call", "only choice"]
_HAIR: Final = 0.01
"""A difference that no input is known to."""
_CLEARLY: Final = 0.2
"""Of the worlds: what is cheapest more often than the estimate's winner by less is as open as a coin."""
_RARE: Final = 0.005
"""A share of the worlds that rounds to none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """The answer."""

    outcome: Outcome
    winner: str
    others_usd: Mapping[str, float]
    """What the best fleet of every other label costs more with every input as estimated, the nearest first; a label
    that has no such fleet is not here, though it may have one in other worlds."""
    probability: float
    """That the winning label is cheapest."""
    likeliest: str
    """The label that is cheapest in most of the worlds drawn, where that is clearly more often than the winner."""
    likeliest_probability: float
    cost_usd: Span
    """P10, median and P90 of what the winning fleet costs, beside its cost as estimated."""
    near: tuple[str, ...]
    """What a hundredth makes another answer of: inputs that move so little, kinds of fleet that cost so little more."""
    measure: tuple[str, ...]
    """What would settle it, the most telling first."""


def judge(
    family: Family, confidence: Confidence, candidates: tuple[Candidate, ...], flips: Sequence[Flip] = ()
) -> PlanVerdict:
    """Compare the winner with the best fleet of any other label."""
    winner = family.label(family.winner)
    more = {label: mix.cost_usd - family.winner.cost_usd for label, mix in family.by_label.items() if label != winner}
    chances = confidence.probability
    clearly = chances[confidence.likeliest] - chances.get(winner, 0.0) >= _CLEARLY
    likeliest = confidence.likeliest if clearly else winner
    rivals = bool(more) or confidence.lost(winner) >= _RARE
    outcome: Outcome = "too close to call" if confidence.too_close(winner) else "wins"
    return PlanVerdict(
        outcome=outcome if rivals else "only choice",
        winner=winner,
        others_usd=more,
        probability=chances.get(winner, 0.0),
        likeliest=likeliest,
        likeliest_probability=chances.get(likeliest, 0.0),
        cost_usd=confidence.fleet_usd,
        near=(
            *dict.fromkeys(flip.name for flip in flips if _is_near(flip)),
            *(label for label, usd in more.items() if usd <= _HAIR * family.winner.cost_usd),
        ),
        measure=tuple(_measure(entry, family, candidates) for entry in confidence.blame) if rivals else (),
    )


def _is_near(flip: Flip) -> bool:
    """Whether less than anybody knows turns it; what comes a day late comes with the plan's next step, so not dates."""
    return flip.kind != "delivery" and flip.distance_fraction <= _HAIR


def _measure(blame: Blame, family: Family, candidates: tuple[Candidate, ...]) -> str:
    """Say what to do about an input: a benchmark for throughput, a quote for a price."""
    part = blame.subject
    settled = {
        "price": f"get a written quote for {part}, a device",
        "rent": f"get a written quote for {part}, a device-hour",
        "engineers": f"decide how many extra engineers the {part} stack takes",
        "engineers_by_size": f"decide how many extra engineers the {part} stack takes",
        "demand": f"forecast the {part}",
        "mean_load": f"forecast the {part}",
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
