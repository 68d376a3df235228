"""Makes a guide: searches each workload shape once, then judges its loads by arithmetic and a few simulations."""

from collections.abc import Iterator

from penstock.errors import UsageError
from penstock.guide.capacity_memory import CapacityFiles
from penstock.guide.crossings import context_crossings, load_crossings
from penstock.guide.fleet_draws import ShapeDraws
from penstock.guide.grid import Grid, WorkloadShape
from penstock.guide.guide_file import GuideQuestion
from penstock.guide.guide_result import Crossing, GuideCell, GuideResult
from penstock.guide.judge_cell import ShapeJudge
from penstock.guide.search_shapes import ShapeSearch
from penstock.guide.shape_capacity import kind_name
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.optimizer.build_problem import is_denied
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.resolve_plan import LeftOut, Resolved
from penstock.simulation.run_options import StageProgress


def make_guide(
    question: GuideQuestion,
    sources: Sources,
    progress: StageProgress = lambda *_: None,
    files: CapacityFiles | None = None,
) -> GuideResult:
    """Compute the result of a guide. `files` keep capacities between processes."""
    grid, template = question.grid, question.template
    shapes = [shape for shape in grid.shapes() if _within_context(shape, sources)]
    if not shapes:
        raise UsageError("no prompt of the grid fits the context of its model; use shorter prompts")
    cells: list[GuideCell] = []
    crossings: list[Crossing] = []
    left_out = dict[str, LeftOut]()
    prices: dict[str, str] = {}
    options = dict[str, Option]()
    served, vendors, unserved = set[str](), dict[str, str](), dict[str, str]()
    search = ShapeSearch(template=template, highest_load=grid.loads[-1], sources=sources, files=files)
    for number, shape in enumerate(shapes):
        progress(f"{shape.model} {shape.input_tokens:,}/{shape.output_tokens:,}", number, len(shapes))
        capacity = search.search(shape)
        judge = ShapeJudge(capacity=capacity, draws=ShapeDraws(capacity=capacity))
        row = [judge.cell(load) for load in grid.loads]
        cells += row
        crossings += load_crossings(row, judge.fleets)
        search.keep(capacity)
        options |= {kind_name(one): one for engines in capacity.engines.values() for one in engines}
        left_out |= {entry.what: entry for entry in (*capacity.resolved.left_out, *_site_exclusions(capacity.resolved))}
        served |= {kind.candidate.accelerator.id for kind in capacity.kinds}
        vendors |= {one.id: one.vendor for one in capacity.resolved.accelerators.values() if one.id not in left_out}
        unserved |= {_accelerator_of(what): why for what, why in capacity.memory.left_out.items()}
        prices |= {
            entry.id: entry.rent.source for entry in capacity.resolved.plan.accelerators if entry.rent is not None
        }
    progress("where the answer turns", len(shapes), len(shapes))
    for line in _columns(grid, cells):
        crossings += context_crossings(line)
    return GuideResult(
        name=question.name,
        grid=grid,
        horizon_years=template.horizon_years,
        start=template.start.isoformat(),
        confidence=template.constraints.confidence,
        cells=tuple(cells),
        crossings=tuple(crossings),
        accelerators=tuple(vendors),
        vendors=tuple(dict.fromkeys(vendors.values())),
        left_out=(
            *left_out.values(),
            *(LeftOut(what=name, why=why) for name, why in unserved.items() if name not in served | left_out.keys()),
        ),
        prices=prices,
        options=options,
    )


def _site_exclusions(resolved: Resolved) -> Iterator[LeftOut]:
    """Yield the accelerators that the site excludes."""
    for accelerator in resolved.accelerators.values():
        if all(is_denied(site, accelerator) for site in resolved.plan.sites):
            yield LeftOut(what=accelerator.id, why="denied at the site")


def _accelerator_of(what: str) -> str:
    """Return the accelerator of an entry such as `guide on h100_sxm`."""
    return what.rpartition(" on ")[2]


def _within_context(shape: WorkloadShape, sources: Sources) -> bool:
    limit = sources.model_of(shape.model).max_context_tokens
    return limit is None or shape.context_tokens <= limit


def _columns(grid: Grid, cells: list[GuideCell]) -> Iterator[list[GuideCell]]:
    """Yield the cells that differ only in their prompt, in order of the prompt."""
    lines: dict[tuple[object, ...], list[GuideCell]] = {}
    for cell in cells:
        attain = (cell.shape.slo.tpot_s, cell.shape.slo.e2e_s, cell.shape.slo.attainment_fraction)
        base = (
            None
            if cell.shape.slo.ttft_s is None
            else round(cell.shape.slo.ttft_s - grid.ttft_per_1k_s * cell.shape.input_tokens / 1000, 6)
        )
        key = (cell.shape.model, cell.shape.output_tokens, base, attain, cell.requests_per_s)
        lines.setdefault(key, []).append(cell)
    yield from lines.values()
