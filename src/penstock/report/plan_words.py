"""How is a plan said in words? The sentences and amounts that the terminal and the HTML report share."""

from collections.abc import Sequence

from penstock.planning.candidates import Candidate
from penstock.planning.make import Answer, PlanResult
from penstock.planning.problem import PoolPeriod
from penstock.planning.sensitivity import Flip

_NAMES = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel", "google": "Google", "mix": "a mix"}
_MILLION, _THOUSAND = 1e6, 1e3
_EXACT_BELOW = 10_000.0


def usd(amount_usd: float) -> str:
    """Write dollars as people say them."""
    if amount_usd != amount_usd or amount_usd in {float("inf"), float("-inf")}:  # noqa: PLR0124 - not a number
        return "-"
    size, sign = abs(amount_usd), "-" if amount_usd < 0 else ""
    if size >= 100 * _MILLION:
        return f"{sign}${size / _MILLION:,.0f}M"
    if size >= _MILLION:
        return f"{sign}${size / _MILLION:,.2f}M"
    return f"{sign}${size / _THOUSAND:,.0f}k" if size >= _EXACT_BELOW else f"{sign}${size:,.0f}"


def per_mtok(price: float | None) -> str:
    """Write a price per million tokens."""
    return "-" if price is None else f"${price:,.3f}" if price < 1 else f"${price:,.2f}"


def amount(value: float, unit: str) -> str:
    """Write an input with its unit."""
    if unit.startswith("USD"):
        rest = unit.removeprefix("USD").replace("/", " per ", 1).replace("/", " and ")
        return f"${value:,.0f}{rest}" if value >= 100 else f"${value:,.3g}{rest}"  # noqa: PLR2004 - cents matter below
    if unit in {"per year", "of price", "of maximum", "of devices/year", "of peak", "of capacity"}:
        return f"{value:.1%} {unit}".replace("of devices/year", "of devices a year")
    if unit == "x estimate":
        return f"{value:.2f} x the estimate"
    return f"{value:,.3g} {unit}".strip()


def label_name(label: str) -> str:
    """Write a vendor, or a mix."""
    return _NAMES.get(label, label)


def capital(text: str) -> str:
    """Start a sentence."""
    return text[:1].upper() + text[1:]


def question(result: PlanResult) -> str:
    """Say what was asked."""
    plan = result.plan
    workloads = "; ".join(
        f"{workload.model} at {workload.peak_requests_per_s:,.3g} requests/s, {workload.slo}"
        for workload in plan.workloads
    )
    return f"{plan.horizon_years:g} years from {plan.start}: {workloads}"


def headline(answer: Answer) -> str:
    """Say who wins, by how much and how surely."""
    verdict, winner = answer.verdict, answer.winner
    cost = f"{usd(winner.cost.total_usd)} all in"
    if verdict.next_best is None or verdict.saving_usd is None:
        return f"{capital(label_name(verdict.winner))} is the only choice: {cost}."
    sure = f"cheapest in {verdict.probability:.0%} of {answer.confidence.draws:,} draws"
    other = label_name(verdict.next_best)
    if verdict.outcome == "too close to call":
        return (
            f"Too close to call: {label_name(verdict.winner)} at {cost}, {other} {usd(verdict.saving_usd)} more; "
            f"{label_name(verdict.winner)} is {sure}."
        )
    return f"{capital(label_name(verdict.winner))} wins: {cost}, {usd(verdict.saving_usd)} less than {other}; {sure}."


def flip_sentence(flip: Flip) -> str:
    """Say at which value the answer changes."""
    now = amount(flip.current, flip.unit)
    inside = ", inside its range" if flip.within_range else ""
    return (
        f"{capital(label_name(flip.winner))} stops winning if {flip.name} is {flip.side} {amount(flip.at, flip.unit)} "
        f"(now {now}{inside}): then {label_name(flip.instead)}"
    )


def runs(pool: PoolPeriod, candidates: Sequence[Candidate]) -> str:
    """Say what runs on a pool."""
    by_id = {entry.id: entry for entry in candidates}
    several = len({by_id[name].workload for name in pool.replicas}) > 1
    parts = []
    for name, count in pool.replicas.items():
        entry = by_id[name]
        model = f"{entry.workload} " if several else ""
        parts.append(f"{count} x {model}{entry.deployment.parallelism} {entry.weights}")
    return ", ".join(parts) or "nothing"


def served(pool: PoolPeriod) -> str:
    """Say which lengths a pool takes."""
    shares: dict[tuple[str, int], float] = {}
    for (_, demand), share in pool.load.items():
        shares[demand] = shares.get(demand, 0.0) + share
    several = len({workload for workload, _ in shares}) > 1
    named = [
        f"{f'{workload} ' if several else ''}{bucket + 1}: {share:.0%}"
        for (workload, bucket), share in sorted(shares.items())
        if share >= 0.005  # noqa: PLR2004 - what rounds to nothing
    ]
    if not named:
        return "standing by"
    whole = all(share > 0.995 for share in shares.values())  # noqa: PLR2004 - rounds to all
    return (
        f"all of lengths {', '.join(str(bucket + 1) for _, bucket in sorted(shares))}"
        if whole
        else f"lengths {', '.join(named)}"
    )
