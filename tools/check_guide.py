"""Checks `penstock guide` against `penstock plan`, on both sides of its crossings.

    python tools/check_guide.py llama-3.1-70b,gpt-oss-120b --on mi325x,mi355x,h200,b200 --cells 60 --crossings 20

Cells are drawn from a grid with a fixed seed. A cell agrees if the plan of the same workload chooses the same
accelerator, or a fleet within 2% of the guide's cost. A crossing agrees if the plans at the two ends of its interval
choose its two vendors: no vendor that is merely close to the winner counts. A guide compares vendors, so fleets of both
vendors do not count there.

A plan is read when its cheapest fleets are simulated, before it searches what would change the answer. The search may
still find a cheaper fleet, so the first `--whole` cells are planned to the end. Guide and plans share their trials.
"""

import argparse
import random
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from penstock.api.capacity_files import guide_files
from penstock.api.plan import sources_of
from penstock.api.trial_files import program_files
from penstock.guide.grid import WorkloadShape
from penstock.guide.guide_file import DEFAULT_LOADS, DEFAULT_PROMPTS, GridEntry, GuideFile, GuideQuestion, question_of
from penstock.guide.guide_result import Crossing, GuideCell, GuideResult
from penstock.guide.make_guide import make_guide
from penstock.planning.make_plan import make_plan
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.problem import Mix
from penstock.planning.optimizer.solved_programs import keep_solutions
from penstock.planning.plan_result import Answer
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.accelerator_entries import AcceleratorEntry
from penstock.planning.uncertainty.quantify_uncertainty import FirstAnswer

WITHIN = 0.02


@dataclass
class FirstAnswerError(Exception):
    """Ends a plan when its fleets are simulated."""

    family: Family


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The cheapest fleet of a plan, and of each label."""

    winner: Mix
    by_label: dict[str, Mix]


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans workloads of one guide with the same sources, so that trials are simulated once."""

    question: GuideQuestion
    sources: Sources

    def first(self, shape: WorkloadShape, load: float) -> Planned | None:
        """Return the simulated fleets of a workload's plan; None if no fleet serves it."""

        def stop(first: FirstAnswer) -> None:
            raise FirstAnswerError(first.family)

        try:
            make_plan(shape.plan(self.question.template, load), self.sources, found=stop)
        except FirstAnswerError as found:
            return Planned(winner=found.family.winner, by_label=dict(found.family.by_label))
        return None

    def whole(self, shape: WorkloadShape, load: float) -> Planned | None:
        """Return the fleets of a workload's plan after its whole analysis; None if no fleet serves it."""
        answer = make_plan(shape.plan(self.question.template, load), self.sources).answer
        if not isinstance(answer, Answer):
            return None
        return Planned(winner=answer.winner.mix, by_label={name: bill.mix for name, bill in answer.by_label.items()})


def agrees(cell: GuideCell, mix: Mix | None) -> bool:
    """Return whether a plan chooses the cell's accelerator, or a fleet within 2% of its cost."""
    if mix is None or cell.winner is None:
        return mix is None and cell.winner is None
    same = mix.support == {pool.accelerator for pool in cell.winner.pools}
    return same or abs(mix.cost_usd / cell.winner.cost_usd - 1) <= WITHIN


def check_cells(planner: Planner, result: GuideResult, count: int, whole: int, seed: int) -> tuple[int, int]:
    """Compare a sample of cells with their plans; return how many agree, and of how many."""
    sample = random.Random(seed).sample(list(result.cells), min(count, len(result.cells)))  # noqa: S311 - a sample
    good = 0
    for number, cell in enumerate(sample):
        begun = time.process_time()
        planned = (planner.whole if number < whole else planner.first)(cell.shape, cell.requests_per_s)
        mix = None if planned is None else planned.winner
        fine = agrees(cell, mix)
        good += fine
        print(f"{'ok ' if fine else 'NO '} {cell_text(cell, mix)}, {time.process_time() - begun:.1f} s", flush=True)
    return good, len(sample)


def cell_text(cell: GuideCell, mix: Mix | None) -> str:
    """Return a cell with its fleet and its plan's fleet."""
    ours = "none" if cell.winner is None else f"{cell.winner.accelerator} ${cell.winner.cost_usd:,.0f}"
    theirs = "none" if mix is None else f"{'+'.join(sorted(mix.support))} ${mix.cost_usd:,.0f}"
    shape = cell.shape
    where = f"{shape.model} {shape.input_tokens:,}/{shape.output_tokens:,} {cell.requests_per_s:g}/s"
    return f"{where}: guide {ours}, plan {theirs}"


def sides(crossing: Crossing, question: GuideQuestion) -> list[tuple[WorkloadShape, float]]:
    """Return the workloads at the lower and at the upper end of a crossing."""
    ends = (crossing.low, crossing.high)
    if crossing.axis == "load":
        return [(crossing.shape, load) for load in ends]
    return [(question.grid.with_prompt(crossing.shape, round(end)), crossing.requests_per_s) for end in ends]


def lead_over(planned: Planned | None, vendor: str) -> float:
    """Return how much more a vendor's fleet costs than the cheapest of one vendor; infinite if it has no fleet."""
    if planned is None or vendor not in planned.by_label:
        return inf
    of_vendors = [mix.cost_usd for mix in planned.by_label.values() if len(mix.vendors) == 1]
    return planned.by_label[vendor].cost_usd / min(of_vendors) - 1


def check_crossings(planner: Planner, result: GuideResult, count: int, seed: int) -> tuple[int, int]:
    """Plan both sides of crossings; return how many agree, and of how many."""
    good, count = 0, min(count, len(result.crossings))
    sample = random.Random(seed).sample(list(result.crossings), count)  # noqa: S311 - a sample
    for crossing in sample:
        said = []
        fine = True
        vendors = (crossing.below_vendor, crossing.above_vendor)
        for (shape, load), vendor in zip(sides(crossing, planner.question), vendors, strict=True):
            lead = lead_over(planner.first(shape, load), vendor)
            fine &= lead <= 0
            said.append(f"{vendor} {'is cheapest' if lead <= 0 else f'costs {lead:.1%} more'}")
        good += fine
        at = f"{crossing.axis} {crossing.low:,.4g} to {crossing.high:,.4g}"
        print(f"{'ok ' if fine else 'NO '} {crossing.shape.model} {at}: {', then '.join(said)}", flush=True)
    return good, len(sample)


def main() -> int:
    """Run the checks and print one line per cell; return 1 if too few agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="?", default="llama-3.1-70b", help="models, as a list")
    parser.add_argument("--on", default="", help="accelerators, as a list; default: every one with a price")
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--crossings", type=int, default=20)
    parser.add_argument("--whole", type=int, default=4, help="cells whose plans are analysed to the end")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of cells")
    given = parser.parse_args()
    grid = GridEntry(models=tuple(given.models.split(",")), prompts=DEFAULT_PROMPTS, loads=DEFAULT_LOADS)
    named = tuple(AcceleratorEntry(id=name) for name in given.on.split(",")) if given.on else None
    question = question_of(GuideFile(grid=grid, accelerators=named, draws=1000), "guide", datetime.now(tz=UTC).date())
    planner = Planner(question=question, sources=sources_of(question.template, Path()))
    begun = time.process_time()
    result = make_guide(question, planner.sources, files=guide_files())
    print(f"guide: {len(result.cells)} cells in {time.process_time() - begun:.1f} s of processor time", flush=True)
    with keep_solutions(program_files()):
        cells = check_cells(planner, result, given.cells, given.whole, given.seed)
        crossings = check_crossings(planner, result, given.crossings, given.seed)
    print(f"cells that agree with their plan: {cells[0]} of {cells[1]}")
    print(f"crossings whose sides agree with their plans: {crossings[0]} of {crossings[1]}")
    return 0 if cells[0] >= 0.9 * cells[1] else 1


if __name__ == "__main__":
    sys.exit(main())
