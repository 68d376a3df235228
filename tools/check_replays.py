"""Checks plans against themselves: other seeds cost the same, and planned fleets keep their promise when replayed.

`seeds` plans ten small plans with the seeds 0 to 9. Their costs must be within 1%; how far P10, median and P90 of the
draws are apart is printed beside them. `trials` plans them with other requests in every simulated trial, and says how
far the costs are apart. `random` plans 20 random plans, and `examples` the shipped ones. Each fleet is then simulated
at its peak, with other seeds and with the router that the fleet file names, and preflight checks the launch of every
pool.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from penstock.api.fleet_check import check_fleet
from penstock.api.plan import plan, sources_of
from penstock.api.progress import LOG
from penstock.api.simulate_fleet import simulate_fleet
from penstock.planning.make_plan import make_plan
from penstock.planning.plan_result import Answer, NoFleet
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.plan_types import Plan
from penstock.preflight import load_knowledge

TODAY = date(2026, 11, 18)
SEEDS, TRIAL_SEEDS = range(10), range(4)
REPLAYED = (101, 20_261_118)
"""Seeds of the replays, which no plan uses."""
MAX_SPREAD = 0.01
EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "plans"
PLAN = """
name: {name}
start: 2026-12-01
horizon_years: {years}
draws: 500
acquire: [rent]
workloads:
  - name: {model}
    model: {model}
    slo: '{slo}'
    requests_per_s: {rate}
    growth_per_year: {growth}
    mtp: false
    lengths: [{{input: {inputs}, output: {outputs}}}]
accelerators: [{accelerators}]
"""
RENTED = {"h100": 2.5, "h200": 3.2, "mi300x": 2.0, "mi325x": 2.2, "l40s": 1.0, "b200": 4.5}
"""Rents in dollars per device-hour."""
MODELS = {
    "llama-3.1-8b": ("ttft=1s,tpot=40ms,attain=95%", ("h100", "h200", "mi300x", "l40s"), 30.0),
    "qwen3-32b": ("ttft=2s,tpot=50ms,attain=95%", ("h100", "h200", "mi300x", "mi325x"), 12.0),
    "llama-3.1-70b": ("ttft=2s,tpot=60ms,attain=95%", ("h200", "mi300x", "mi325x", "b200"), 10.0),
    "gpt-oss-120b": ("ttft=1s,tpot=30ms,attain=95%", ("h100", "h200", "mi300x", "b200"), 20.0),
}
"""Each model's SLO, accelerators, and highest request rate of a random plan."""


def random_plan(number: int) -> Plan:
    """Return a small random plan: one model, one or two accelerators, and growth in some plans."""
    draw = np.random.default_rng([20_261_118, number])
    model = str(draw.choice(list(MODELS)))
    slo, accelerators, most = MODELS[model]
    chosen = draw.choice(accelerators, size=int(draw.integers(1, 3)), replace=False)
    text = PLAN.format(
        name=f"random {number}",
        years=1,
        model=model,
        slo=slo,
        rate=round(float(most * draw.uniform(0.05, 1.0)), 2),
        growth="60%" if draw.random() < 1 / 4 else "0%",
        inputs=int(draw.choice([500, 1000, 3000])),
        outputs=int(draw.choice([150, 300, 600])),
        accelerators=", ".join(f"{{id: {name}, rent_usd_per_hour: {RENTED[str(name)]}}}" for name in chosen),
    )
    return parse_plan(text, f"random {number}", today=TODAY)


def check_seeds(count: int) -> Iterator[tuple[bool, str]]:
    """Yield, for each plan, whether its costs at all seeds are within 1%, and the costs in words."""
    for number in range(count):
        asked = random_plan(number)
        found = [plan(replace(asked, seed=seed)).result.answer for seed in SEEDS]
        yield compare_answers(asked.name, found, intervals=True)


def check_trials(count: int) -> Iterator[tuple[bool, str]]:
    """Yield, for each plan, whether its costs with four sets of simulated requests are within 1%, in words."""
    for number in range(count):
        asked = random_plan(number)
        found = [make_plan(asked, sources_of(asked, Path(), trial_seed=seed)).answer for seed in TRIAL_SEEDS]
        yield compare_answers(asked.name, found, intervals=False)


def compare_answers(name: str, found: Sequence[Answer | NoFleet], *, intervals: bool) -> tuple[bool, str]:
    """Return whether answers of one plan are within 1%, and their figures in words."""
    answers = [answer for answer in found if isinstance(answer, Answer)]
    if len(answers) < len(found):
        return False, f"{name}: {len(found) - len(answers)} of {len(found)} have no fleet"
    spans = [answer.confidence.fleet_usd for answer in answers]
    figures = {"cost": [answer.winner.mix.cost_usd for answer in answers]}
    if intervals:
        figures |= {
            "P10": [span.low for span in spans],
            "median": [span.median for span in spans],
            "P90": [span.high for span in spans],
        }
    apart = {what: max(costs) / min(costs) - 1 for what, costs in figures.items()}
    told = ", ".join(
        f"{what} ${min(costs):,.0f} to ${max(costs):,.0f} ({apart[what]:.2%})" for what, costs in figures.items()
    )
    winners = ", ".join(sorted({answer.verdict.winner for answer in answers}))
    return apart["cost"] <= MAX_SPREAD, f"{name}: {told}; {winners}"


def check_replays(asked: Plan | Path) -> Iterator[tuple[bool, str]]:
    """Yield, for the fleet of each period, whether replays keep every SLO and preflight passes every launch."""
    planned = plan(asked)
    knowledge, name = load_knowledge(), planned.result.plan.name
    if not planned.good:
        yield False, f"{name}: no fleet"
    for start, fleet in planned.fleets():
        answers = [simulate_fleet(fleet, seed=seed) for seed in REPLAYED]
        pools, launches = check_fleet(fleet, knowledge, LOG)
        launched = sum(launch.passes and "YOUR-" not in launch.plan.bare() for launch in launches)
        good = all(answer.good for answer in answers)
        worst = min(float(str(row["worst_met_fraction"])) for answer in answers for row in answer.rows())
        told = f"{name} from {start}: {worst:.1%} of the worst class in time, {launched} of {len(pools)} pools launch"
        yield good and launched == len(pools), told


def main() -> None:
    """Print every check; exit 1 if any fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=("seeds", "trials", "random", "examples"), help="two by default")
    parser.add_argument("--seeded", type=int, default=10, help="plans of `seeds` and `trials`")
    parser.add_argument("--replayed", type=int, default=20, help="plans of `random`")
    given = parser.parse_args()
    parts = given.part or ("seeds", "random")
    checks: list[Iterator[tuple[bool, str]]] = []
    if "seeds" in parts:
        checks.append(check_seeds(given.seeded))
    if "trials" in parts:
        checks.append(check_trials(given.seeded))
    if "random" in parts:
        checks += [check_replays(random_plan(number)) for number in range(given.replayed)]
    if "examples" in parts:
        checks += [check_replays(path) for path in sorted(EXAMPLES.glob("*.yaml"))]
    failed = 0
    for found in checks:
        for good, told in found:
            failed += not good
            print("ok  " if good else "FAIL", told, flush=True)
    if failed:
        raise SystemExit(f"{failed} checks failed")


if __name__ == "__main__":
    main()
