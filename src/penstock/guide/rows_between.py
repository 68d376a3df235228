"""Finds the cheapest fleets for prompts between the rows of a grid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from penstock.guide.cheapest_fleet import SizedFleet
from penstock.guide.grid import Grid, WorkloadShape
from penstock.guide.guide_result import GuideCell
from penstock.guide.judge_cell import ShapeJudge
from penstock.guide.search_shapes import ShapeSearch


@dataclass(kw_only=True, eq=False)
class RowsBetween:
    """Searches prompts between the rows, on the accelerators that are cheapest of their vendor in a row next to them.

    All other accelerators are left out: each would be simulated for a prompt that no row names.
    """

    search: ShapeSearch
    grid: Grid
    cells: dict[WorkloadShape, list[GuideCell]] = field(default_factory=dict)
    """Maps the shape of a row to its cells."""
    _judges: dict[WorkloadShape, tuple[ShapeSearch, ShapeJudge]] = field(default_factory=dict)

    def fleets(self, below: GuideCell, above: GuideCell, prompt: float) -> Sequence[SizedFleet]:
        """Return the cheapest fleet of each vendor for a prompt between two cells of one load, the cheapest first."""
        shape = self.grid.with_prompt(below.shape, round(prompt))
        if shape not in self._judges:
            ends = [cell for end in (below, above) for cell in self.cells[end.shape]]
            names = {fleet.accelerator for cell in ends for fleet in cell.fleets}
            search = self.search.on(names, below.shape)
            self._judges[shape] = search, ShapeJudge.of(search, search.search(shape))
        return self._judges[shape][1].fleets(below.requests_per_s)

    def keep(self) -> None:
        """Keep what was found, for later processes."""
        for search, judge in self._judges.values():
            search.keep(judge.capacity)


def columns(grid: Grid, cells: Sequence[GuideCell]) -> Iterator[list[GuideCell]]:
    """Yield the cells that differ only in their prompt, in order of the prompt."""
    found = {(cell.shape, cell.requests_per_s): cell for cell in cells}
    for model, slo, output, load in product(grid.models, grid.slos, grid.outputs, grid.loads):
        shapes = (grid.shape(model, prompt, output, slo) for prompt in grid.prompts)
        yield [found[shape, load] for shape in shapes if (shape, load) in found]
