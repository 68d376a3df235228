"""Compares the winners of `penstock guide` with the winners of public measurements at the same prices.

    python tools/check_guide_world.py --cells 30

A cell is a model with its weights, the lengths of its requests and a limit on TPOT, for which accelerators of both
vendors were measured. Measured: the most output tokens per second and device within the limits, over all setups, each
with its newest run, interpolated between two loads. Guide: the rate of a replica with the engines of these rows, for
half of the requests within the limits, because rows state medians, and with the headroom that the confidence takes.
Both are divided into the rent, so whole units, spares and people do not count. A comparison is left out if the dearer
accelerator was not measured up to the limit, because its rate is then not known.
"""

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise, product
from math import inf, isfinite
from pathlib import Path

from penstock.api.capacity_files import guide_files
from penstock.api.plan import sources_of
from penstock.catalog import load_accelerator, load_measurements, load_prices, load_seller_levels
from penstock.catalog.measurement import Measurement
from penstock.guide.grid import WorkloadShape
from penstock.guide.guide_file import GridEntry, GuideFile, question_of
from penstock.guide.search_shapes import ShapeSearch
from penstock.guide.shape_capacity import ShapeCapacity
from penstock.performance.calibration.measured_runs import setup_of, usable_runs
from penstock.planning.spec.accelerator_entries import AcceleratorEntry
from penstock.planning.spec.catalog_prices import hourly_price
from penstock.workload.slo import Slo

LIMITS_S = (0.015, 0.02, 0.03, 0.05)
"""Limits on TPOT."""
FIRST_S = 10.0
"""Limit on the time to first token."""
CLOSE = 1.15
"""Two costs within this ratio count as close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A workload with measurements of both vendors."""

    model: str
    weights: str
    input_tokens: int
    output_tokens: int
    limit_s: float
    rates: Mapping[str, tuple[float, bool]]
    """Maps accelerator to the measured output tokens per second and device, and whether the limit was reached."""
    engines: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the cell in words."""
        return (
            f"{self.model} {self.weights} {self.input_tokens:,}/{self.output_tokens:,} TPOT {self.limit_s * 1e3:.0f} ms"
        )


def rate_of(row: Measurement) -> float:
    """Return the output tokens per second and device; in a closed loop they follow from the times."""
    if row.output_tokens_per_s is not None:
        return row.output_tokens_per_s / row.devices
    request_s = (row.ttft_s or 0.0) + (row.tpot_s or inf) * (row.output_tokens - 1)
    return (row.concurrency or 0.0) * row.output_tokens / request_s / row.devices


def rate_within(points: Sequence[Measurement], limit_s: float) -> tuple[float, bool] | None:
    """Return the highest rate of a setup within the limits, and whether a higher load broke them; None if all did."""
    within = [(row.tpot_s or inf) <= limit_s and (row.ttft_s or 0.0) <= FIRST_S for row in points]
    if not within[0]:
        return None
    best, reached = rate_of(points[0]), False
    for (one, other), good in zip(pairwise(points), within[1:], strict=True):
        reached = not good
        if reached:
            low, high = one.tpot_s or inf, other.tpot_s or inf
            share = min(1.0, (limit_s - low) / (high - low)) if high > low and (other.ttft_s or 0.0) <= FIRST_S else 0.0
            best = max(best, rate_of(one) + share * (rate_of(other) - rate_of(one)))
            break
        best = max(best, rate_of(other))
    return best, reached


def measured_cells() -> Iterator[Cell]:
    """Yield every workload and limit for which accelerators of both vendors were measured."""
    groups: dict[tuple[str, str, int, int], dict[tuple[str, object], dict[float, Measurement]]] = defaultdict(dict)
    rows = [row for row in usable_runs(load_measurements()) if row.scenario == "online" and not row.overlap]
    for row in sorted(rows, key=lambda row: row.date):
        if row.concurrency and row.tpot_s:
            key = row.model, row.weights, round(row.input_tokens / 100) * 100, round(row.output_tokens / 100) * 100
            groups[key].setdefault((row.accelerator, setup_of(row)), {})[row.concurrency] = row
    for (model, weights, inputs, outputs), setups in sorted(groups.items()):
        for limit_s in LIMITS_S:
            rates: dict[str, tuple[float, bool]] = {}
            for (accelerator, _), points in setups.items():
                found = rate_within([points[users] for users in sorted(points)], limit_s)
                if found is not None:
                    rates[accelerator] = max(rates.get(accelerator, (0.0, False)), found)
            yield Cell(
                model=model,
                weights=weights,
                input_tokens=inputs,
                output_tokens=outputs,
                limit_s=limit_s,
                rates=rates,
                engines=tuple(sorted({row.engine for points in setups.values() for row in points.values()})),
            )


def rents_of(names: Iterable[str]) -> dict[str, float]:
    """Return the rents by the hour that a guide uses; accelerators without a rent are left out."""
    found = {name: hourly_price(load_prices(name), load_seller_levels) for name in names}
    return {name: price.value for name, price in found.items() if price is not None}


def guide_capacity(cell: Cell) -> ShapeCapacity:
    """Return what the guide finds for a cell, without drafts, as the rows were measured."""
    slo = Slo(ttft_s=FIRST_S, tpot_s=cell.limit_s, attainment_fraction=0.5)
    grid = GridEntry(
        models=(cell.model,),
        prompts=(cell.input_tokens,),
        outputs=(cell.output_tokens,),
        slos=(slo,),
        weights=(cell.weights,),
        engine=cell.engines,
    )
    named = tuple(AcceleratorEntry(id=name) for name in sorted(cell.rates))
    file = GuideFile(name="world", grid=grid, accelerators=named)
    template = question_of(file, "guide", datetime.now(tz=UTC).date()).template
    template = replace(template, draws=1000, workloads=(replace(template.workloads[0], mtp=False),))
    load = 64 * max(rate for rate, _ in cell.rates.values()) / cell.output_tokens
    sources = sources_of(template, Path())
    search = ShapeSearch(template=template, highest_load=load, sources=sources, files=guide_files())
    shape = WorkloadShape(model=cell.model, input_tokens=cell.input_tokens, output_tokens=cell.output_tokens, slo=slo)
    capacity = search.search(shape)
    search.keep(capacity)
    return capacity


def guide_rates(capacity: ShapeCapacity) -> dict[str, float]:
    """Return the output tokens per second and device that the guide plans with, for each accelerator."""
    found: dict[str, float] = {}
    for entry in {kind.candidate.id: kind.candidate for kind in capacity.kinds}.values():
        best, headroom = capacity.candidate_at(entry, capacity.highest_load)
        if isfinite(headroom):
            rate = best.rates[0] / headroom / best.devices * capacity.shape.output_tokens
            found[entry.accelerator.id] = max(found.get(entry.accelerator.id, 0.0), rate)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Accelerators of the two vendors in one cell."""

    kind: str
    amd: Sequence[str]
    nvidia: Sequence[str]
    rents: Mapping[str, float]
    measured: float
    """Cost of AMD relative to NVIDIA by the measurements."""

    def guide(self, rates: Mapping[str, float]) -> float:
        """Return the cost of AMD relative to NVIDIA by the guide; infinite or 0 if only one of them keeps the SLO."""
        return ratio(rates, self.rents, self.amd, self.nvidia)

    @property
    def close(self) -> bool:
        """Return whether the measured costs are close."""
        return max(self.measured, 1 / self.measured) < CLOSE


def ratio(rates: Mapping[str, float], rents: Mapping[str, float], amd: Sequence[str], nvidia: Sequence[str]) -> float:
    """Return the cheapest rent per rate of the AMD accelerators relative to that of the NVIDIA accelerators."""
    costs = [
        min((rents[name] / rates[name] for name in names if rates.get(name)), default=inf) for names in (amd, nvidia)
    ]
    return inf if not isfinite(costs[0]) else 0.0 if not isfinite(costs[1]) else costs[0] / costs[1]


def comparisons(cell: Cell) -> Iterator[Comparison]:
    """Yield the vendors at the rents, and each two accelerators at the rents and at equal rents."""
    rents, measured = rents_of(cell.rates), {name: rate for name, (rate, _) in cell.rates.items()}
    amd = [name for name in rents if load_accelerator(name).vendor == "amd"]
    nvidia = [name for name in rents if load_accelerator(name).vendor == "nvidia"]
    asked = [("vendors at their rents", rents, amd, nvidia)]
    for first, second in product(amd, nvidia):
        asked += [("pairs at their rents", rents, [first], [second])]
        asked += [("pairs at equal rents", dict.fromkeys(rents, 1.0), [first], [second])]
    for kind, by, one, other in asked if amd and nvidia else ():
        seen = ratio(measured, by, one, other)
        dearer = min(one if seen > 1 else other, key=lambda name: by[name] / measured[name])
        if cell.rates[dearer][1]:
            yield Comparison(kind=kind, amd=one, nvidia=other, rents=by, measured=seen)


Outcome = tuple[Comparison, bool]
"""A comparison, and whether guide and measurements name the same vendor."""


def print_table(found: Sequence[Outcome]) -> None:
    """Print the share of comparisons in which guide and measurements name the same vendor."""
    print("| comparison | all | agree | more than 15% apart | agree | AMD won | agree | NVIDIA won | agree |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in dict.fromkeys(one.kind for one, _ in found):
        every = [(one, good) for one, good in found if one.kind == kind]
        apart = [(one, good) for one, good in every if not one.close]
        won = [[(one, good) for one, good in apart if (one.measured < 1) is amd] for amd in (True, False)]
        print(f"| {kind} | " + " | ".join(f"{len(group)} | {share(group)}" for group in (every, apart, *won)) + " |")


def share(group: Sequence[Outcome]) -> str:
    """Return the share of comparisons that agree."""
    return "-" if not group else f"{sum(good for _, good in group) / len(group):.0%}"


def compare(cell: Cell, asked: Sequence[Comparison]) -> Iterator[Outcome]:
    """Yield the outcomes of one cell, and print those that disagree."""
    begun = time.process_time()
    rates = guide_rates(guide_capacity(cell))
    print(f"{cell.name}: {len(asked)} comparisons, {time.process_time() - begun:.1f} s", flush=True)
    for one in asked:
        guide = one.guide(rates)
        good = (one.measured < 1) == (guide < 1)
        if not good:
            names = f"{', '.join(one.amd)} against {', '.join(one.nvidia)}"
            print(f"  NO {one.kind}, {names}: measured {one.measured:.2f}, guide {guide:.2f}", flush=True)
        yield one, good


def main() -> int:
    """Run the comparison and print its table; return 1 if the vendors of fewer than 90% of the cells agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000, help="number of cells to draw")
    parser.add_argument("--models", default="", help="models, as a list; default: all")
    given = parser.parse_args()
    cells = [(cell, list(comparisons(cell))) for cell in measured_cells() if cell.model in (given.models or cell.model)]
    cells = [(cell, asked) for cell, asked in cells if asked]
    random.Random(0).shuffle(cells)  # noqa: S311 - a sample
    sample = cells[: given.cells]
    print(f"{len(cells)} cells were measured on both vendors up to the limit; {len(sample)} are compared", flush=True)
    found = [outcome for cell, asked in sample for outcome in compare(cell, asked)]
    print_table(found)
    vendors = [good for one, good in found if one.kind == "vendors at their rents"]
    return 0 if sum(vendors) >= 0.9 * len(vendors) else 1


if __name__ == "__main__":
    sys.exit(main())
