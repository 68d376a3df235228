"""Checks `penstock guide` against `penstock plan`, on both sides of its crossings, and against public measurements.

    python tools/check_guide.py --cells 60 --crossings 20

Cells are drawn from a grid with a fixed seed. A cell agrees if the plan of the same workload chooses the same
accelerator, or a fleet within 2% of the guide's cost. At a crossing the two vendors cost the same, so plans close to it
show nothing. A crossing agrees if the plans of workloads 10% beyond its two sides choose the two vendors: no vendor
that is merely close to the winner counts. Every plan simulates, so each cell takes about a minute the first time.
"""

import argparse
import random
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path

from penstock.api.capacity_files import guide_files
from penstock.api.guide import guide_question
from penstock.api.options.guide_options import GuideOptions
from penstock.api.plan import plan, sources_of
from penstock.guide.grid import WorkloadShape
from penstock.guide.guide_file import GuideQuestion
from penstock.guide.guide_result import Crossing, GuideCell, GuideResult
from penstock.guide.make_guide import make_guide
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer

WITHIN = 0.02
BEYOND = 1.1
"""Factor by which a checked workload lies beyond the side of a crossing."""


def planned(question: GuideQuestion, shape: WorkloadShape, load: float) -> Answer | None:
    """Return the answer of a cell's plan."""
    answer = plan(shape.plan(question.template, load)).result.answer
    return answer if isinstance(answer, Answer) else None


def agrees(cell: GuideCell, mix: Mix | None) -> bool:
    """Return whether a plan chooses the cell's accelerator, or a fleet within 2% of its cost."""
    if mix is None or cell.winner is None:
        return mix is None and cell.winner is None
    same = mix.support == {pool.accelerator for pool in cell.winner.pools}
    return same or abs(mix.cost_usd / cell.winner.cost_usd - 1) <= WITHIN


def check_cells(question: GuideQuestion, result: GuideResult, count: int, seed: int) -> tuple[int, int]:
    """Compare a sample of cells with their plans; return how many agree, and of how many."""
    sample = random.Random(seed).sample(list(result.cells), min(count, len(result.cells)))  # noqa: S311 - a sample
    good = 0
    for cell in sample:
        answer = planned(question, cell.shape, cell.requests_per_s)
        mix = None if answer is None else answer.winner.mix
        fine = agrees(cell, mix)
        good += fine
        ours = "none" if cell.winner is None else f"{cell.winner.accelerator} ${cell.winner.cost_usd:,.0f}"
        theirs = "none" if mix is None else f"{'+'.join(sorted(mix.support))} ${mix.cost_usd:,.0f}"
        where = f"{cell.shape.model} {cell.shape.input_tokens:,}/{cell.shape.output_tokens:,} {cell.requests_per_s:g}/s"
        print(f"{'ok ' if fine else 'NO '} {where}: guide {ours}, plan {theirs}", flush=True)
    return good, len(sample)


def sides(crossing: Crossing, question: GuideQuestion) -> list[tuple[WorkloadShape, float]]:
    """Return the workloads below and above a crossing, at a distance from it."""
    ends = (crossing.low / BEYOND, crossing.high * BEYOND)
    if crossing.axis == "load":
        return [(crossing.shape, load) for load in ends]
    base = question.grid.slos[0]
    model, output = crossing.shape.model, crossing.shape.output_tokens
    return [(question.grid.shape(model, round(end), output, base), crossing.requests_per_s) for end in ends]


def lead_over(answer: Answer | None, vendor: str) -> float:
    """Return how much more a vendor's fleet costs than the plan's winner; infinite if the vendor has no fleet."""
    if answer is None or vendor not in answer.by_label:
        return inf
    return answer.by_label[vendor].mix.cost_usd / answer.winner.mix.cost_usd - 1


def check_crossings(question: GuideQuestion, result: GuideResult, count: int) -> tuple[int, int]:
    """Plan both sides of crossings; return how many agree, and of how many."""
    good, sample = 0, result.crossings[:count]
    for crossing in sample:
        said = []
        fine = True
        vendors = (crossing.below_vendor, crossing.above_vendor)
        for (shape, load), vendor in zip(sides(crossing, question), vendors, strict=True):
            lead = lead_over(planned(question, shape, load), vendor)
            fine &= lead <= 0
            said.append(f"{vendor} {'is cheapest' if lead <= 0 else f'costs {lead:.1%} more'}")
        good += fine
        at = f"{crossing.axis} {crossing.low:,.4g} to {crossing.high:,.4g}"
        print(f"{'ok ' if fine else 'NO '} {crossing.shape.model} {at}: {', then '.join(said)}", flush=True)
    return good, len(sample)


def main() -> int:
    """Run the checks and print one line per cell; return 1 if too few agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="llama-3.1-70b", help="a model or a guide file")
    parser.add_argument("--prompts")
    parser.add_argument("--loads")
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--crossings", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the sample of cells")
    given = parser.parse_args()
    question = guide_question(GuideOptions(given.what, prompts=given.prompts, loads=given.loads))
    question = replace(question, template=replace(question.template, draws=1000))
    begun = time.process_time()
    result = make_guide(question, sources_of(question.template, Path()), lambda *_: None, guide_files())
    print(f"guide: {len(result.cells)} cells in {time.process_time() - begun:.1f} s of processor time", flush=True)
    cells = check_cells(question, result, given.cells, given.seed)
    crossings = check_crossings(question, result, given.crossings)
    print(f"cells that agree with their plan: {cells[0]} of {cells[1]}")
    print(f"crossings whose sides agree with their plans: {crossings[0]} of {crossings[1]}")
    return 0 if cells[0] >= 0.9 * cells[1] else 1


if __name__ == "__main__":
    sys.exit(main())
