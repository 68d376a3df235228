"""Summarises the answer: the winner, its saving and probability, and measurements that would settle a close answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.uncertainty.monte_carlo import Blame, Confidence, Span
from penstock.planning.uncertainty.sensitivity import Flip
from penstock.planning.uncertainty.uncertain_inputs import PRICE_CHANGE

Outcome = Literal["an API is cheaper", "wins", "too close to call", "only choice"]
_HAIR: Final = 0.01
"""Relative difference that is smaller than the precision of any input."""
_CLEARLY: Final = 0.2
"""Minimum lead, as a share of draws, from which on another label counts as likelier than the winner."""
_RARE: Final = 0.005
"""Shares of draws up to this value are printed as zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """The answer of a plan."""

    of_fleets: Outcome
    """The answer among fleets."""
    winner: str
    others_usd: Mapping[str, float]
    """Maps every other label to the extra cost of its best fleet at the estimated inputs, sorted by extra cost.

    A label that has no feasible fleet at the estimated inputs is absent, even if it has one in some draws."""
    probability: float
    """Probability that the winning label is cheapest."""
    likeliest: str
    """The label that is cheapest in the most draws, if it clearly leads the winner; otherwise the winner."""
    likeliest_probability: float
    cost_usd: Span
    """P10, median and P90 of the winning fleet's cost over the draws."""
    near: tuple[str, ...]
    """Inputs for which a change of 1% changes the winner, and labels that cost at most 1% more than the winner."""
    measure: tuple[str, ...]
    """Measurements that would settle a close answer, sorted by how informative they are, first the most informative."""
    api_usd: float | None = None
    """What the tokens of all workloads cost on APIs, in today's dollars; None if the price of a model is not known."""
    fleet_usd: float = 0.0
    """Cost of the winning fleet at the estimated inputs."""

    @property
    def outcome(self) -> Outcome:
        """Return the answer among the fleets and APIs."""
        cheaper = self.api_usd is not None and self.api_usd < self.fleet_usd
        return "an API is cheaper" if cheaper else self.of_fleets


def judge(
    family: Family,
    confidence: Confidence,
    candidates: tuple[Candidate, ...],
    flips: Sequence[Flip] = (),
    api_usd: float | None = None,
) -> PlanVerdict:
    """Compare the winner with the best fleet of every other label, and with APIs."""
    winner = family.label(family.winner)
    more = {label: mix.cost_usd - family.winner.cost_usd for label, mix in family.by_label.items() if label != winner}
    chances = confidence.probability
    clearly = chances[confidence.likeliest] - chances.get(winner, 0.0) >= _CLEARLY
    likeliest = confidence.likeliest if clearly else winner
    rivals = bool(more) or confidence.loss_probability(winner) >= _RARE
    outcome: Outcome = "too close to call" if confidence.too_close(winner) else "wins"
    return PlanVerdict(
        of_fleets=outcome if rivals else "only choice",
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
        api_usd=api_usd,
        fleet_usd=family.winner.cost_usd,
    )


def _is_near(flip: Flip) -> bool:
    """Return whether a flip is within 1% of the plan's value, which is less than the precision of any input.

    Flips of delivery dates never count as close, because nodes that arrive one day late wait for the plan's next
    period.
    """
    return flip.kind != "delivery" and flip.distance_fraction <= _HAIR


def _measure(blame: Blame, family: Family, candidates: tuple[Candidate, ...]) -> str:
    """Return the action that would make an input certain, such as a benchmark for throughput or a quote for a price."""
    subject = blame.subject
    settled = {
        "price": f"get a written quote for {subject}, per device",
        "rent": f"get a written quote for {subject}, per device-hour",
        "engineers": f"decide how many extra engineers the {subject} stack needs",
        "engineers_by_size": f"decide how many extra engineers the {subject} stack needs",
        "demand": f"forecast the {subject}",
        "mean_load": f"forecast the {subject}",
        "delivery": f"get the delivery date of {subject} in writing",
        "software_gain": f"give your own figure for the {subject} in the plan file",
        "rate": f"give your own figure for the {subject} in the plan file",
    }
    if blame.id == PRICE_CHANGE:
        return "agree on prices for the whole plan, because later prices are uncertain"
    if blame.kind in settled:
        return settled[blame.kind]
    running = {
        replica
        for mix in family.fleets
        for pool in mix.pools
        if pool.offer.accelerator == subject
        for replica in pool.replicas
    }
    placed = next((entry for entry in candidates if entry.id in running), None)
    if placed is None:
        return f"benchmark {subject} on your own workload"
    model = placed.deployment.model.name
    return f"benchmark {model} on {subject}, {placed.way}, {placed.weights} weights, at your lengths and SLO"
